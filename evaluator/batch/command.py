"""Put together what `warpgrade batch` is asked for, and do it."""

import contextlib
import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, TextIO

from evaluator.batch.displays import display_on
from evaluator.batch.handle import Hire, Slot
from evaluator.batch.inputs import Item, Problems, expected, named_once, open_lines, read_folder, read_lines
from evaluator.batch.manifest import Terms
from evaluator.batch.run_folder import Plan, manifest_for, opened
from evaluator.batch.session import Session, Tally
from evaluator.batch.slots import gpus_for, slots_for
from evaluator.batch.tasks import Shard
from evaluator.doctor import default_device
from evaluator.errors import UsageError
from evaluator.records import DeviceKind, SizeName, ToleranceRule, WeightsRule
from evaluator.request import AUTO, baselines, has_walls, strict
from evaluator.signatures.keys import signing_key
from evaluator.submission.read import STDIN

_SHARD = re.compile(r"([1-9][0-9]{0,5})/([1-9][0-9]{0,5})")


class BatchWish(NamedTuple):
    """What a user says of a batch; None, or `AUTO` as the device, leaves it to the defaults."""

    submissions: str
    run: Path
    problems: Path | None
    device: str
    gpu: str | None
    size: str | None
    tolerance: str | None
    sandbox: str
    timeout: float | None
    build_timeout: float
    deadline: float | None
    require_own_kernel: float | None
    strict: bool
    baseline: tuple[str, ...]
    weights: str | None
    jobs: int | None
    ray: str | None
    limit: int | None
    shard: str | None
    retry: str | None
    fresh: bool
    fail_fast: bool
    sign: Path | None


class Given(NamedTuple):
    """Where submissions come from: a stream of `lines`, or else a folder with so many in `total`."""

    origin: str
    lines: BinaryIO | None
    total: int | None


def run_batch(wish: BatchWish, stream: TextIO, jsonl: TextIO | None) -> Tally:
    """Grade everything that has no card yet. Progress goes to `stream`, lines of JSON to `jsonl`.

    Raises:
        UsageError: something that is named is wrong, or the run's folder is taken.
        InfraError: this machine failed; the same command goes on.
        KeyboardInterrupt: likewise.
    """
    device = default_device() if wish.device == AUTO else DeviceKind(wish.device)
    terms = Terms(
        device=device,
        size=SizeName(wish.size) if wish.size else None,
        tolerance=ToleranceRule(wish.tolerance or ToleranceRule.MEASURED),
        sandbox=wish.sandbox,
        timeout_s=wish.timeout,
        build_timeout_s=wish.build_timeout,
        deadline_s=wish.deadline,
        require_own_kernel=wish.require_own_kernel,
        strict=strict(wish.sandbox, wish.strict),
        baselines=baselines(wish.baseline, device),
        weights=WeightsRule(wish.weights) if wish.weights else None,
    )
    key = signing_key(wish.sign, walls=has_walls(wish.sandbox))
    shard = parse_shard(wish.shard) if wish.shard else None
    problems = Problems(wish.problems, terms.actual_size)
    with contextlib.ExitStack() as stack:
        # Before the run's folder is made, or emptied with --fresh: this may be refused.
        given = _given(wish.submissions, stack)
        total = _total(given, wish.limit) if shard is None else None
        slots, hire = _crew(wish, device, stack)
        manifest = manifest_for(terms, wish.problems, wish.submissions)
        folder = stack.enter_context(opened(wish.run, manifest, fresh=wish.fresh))
        plan = stack.enter_context(Plan(folder))
        items = named_once(_items(given, problems, plan))
        if shard is not None:
            items = filter(shard.holds, items)
        display = stack.enter_context(display_on(stream, total, jsonl=jsonl))
        chosen = itertools.islice(items, wish.limit)
        return Session(
            folder, plan, chosen, terms, slots, display, retry=wish.retry, fail_fast=wish.fail_fast, hire=hire, key=key
        ).run()


def _crew(wish: BatchWish, device: DeviceKind, stack: contextlib.ExitStack) -> tuple[list[Slot], Hire | None]:
    """Say who grades: this machine, or those of a Ray cluster, which is left with `stack`."""
    if wish.ray is None:
        return slots_for(device, wish.jobs, gpus_for(device, wish.gpu)), None
    if wish.gpu is not None:
        raise UsageError("--gpu says nothing with --ray: each actor has the GPU that Ray gives it")
    from evaluator.batch.cluster import Cluster

    cluster = stack.enter_context(Cluster(wish.ray))
    return cluster.slots(device, wish.jobs), cluster.hire(device)


def parse_shard(text: str) -> Shard:
    """Read `k/n`.

    >>> parse_shard("2/8")
    Shard(number=2, of=8)

    Raises:
        UsageError: it is none.
    """
    found = _SHARD.fullmatch(text)
    if found is None or int(found[1]) > int(found[2]):
        raise UsageError(f"{text!r} is no part of a batch", hint="--shard 1/4 is the first of four parts")
    return Shard(number=int(found[1]), of=int(found[2]))


def _given(submissions: str, stack: contextlib.ExitStack) -> Given:
    """Find what was handed in; a file that is opened is closed with `stack`."""
    if submissions == STDIN:
        return Given("stdin", sys.stdin.buffer, None)
    path = Path(submissions)
    if path.is_dir():
        return Given(submissions, None, expected(path))
    return Given(submissions, stack.enter_context(open_lines(path)), None)


def _total(given: Given, limit: int | None) -> int | None:
    """Say how many will come, where that is known."""
    return given.total if given.total is None or limit is None else min(given.total, limit)


def _items(given: Given, problems: Problems, plan: Plan) -> Iterator[Item]:
    if given.lines is None:
        return read_folder(Path(given.origin), problems, plan.by_origin())
    return read_lines(given.lines, given.origin, problems)
