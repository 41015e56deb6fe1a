"""Execution of `warpgrade batch` from its parsed arguments."""

import contextlib
import itertools
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TextIO

from evaluator.batch.progress_display import display_on
from evaluator.batch.runs.inputs import Item, expected, named_once, open_lines, read_folder, read_lines
from evaluator.batch.runs.problems import Problems
from evaluator.batch.runs.refusals import Refusals
from evaluator.batch.runs.run_folder import PlanFile, RunFolder, manifest_for, opened
from evaluator.batch.runs.tasks import Planned, Refused, RefusedByCause, Shard
from evaluator.batch.scheduler import RunTally, Scheduler
from evaluator.batch.workers.ray_cluster import WorkerSlots, cluster_places
from evaluator.batch.workers.slots import gpus_for, slots_for
from evaluator.errors import ToolchainMissing, UsageError
from evaluator.grade_options import GradeOptions
from evaluator.grading.resolved_request import options_for
from evaluator.records import DeviceKind
from evaluator.signatures.keys import signing_key
from evaluator.submission.read import STDIN

_LOOKED_AT = 10_000
"""Refused inputs at the beginning of a run after which the run begins nevertheless: a stream may have no end."""
_SHARD = re.compile(r"([1-9][0-9]{0,5})/([1-9][0-9]{0,5})")


class BatchArguments(NamedTuple):
    """Command-line arguments of a batch, without the options of its grades."""

    submissions: str
    run: Path
    jobs: int | None = None
    ray: str | None = None
    limit: int | None = None
    shard: str | None = None
    only: tuple[str, ...] = ()
    retry: str | None = None
    fresh: bool = False
    fail_fast: bool = False
    allow_problem_text: bool = False


class SubmissionSource(NamedTuple):
    """Source of submissions: an open stream of `lines`, or a folder with `total` submissions.

    `is_kept`: the source holds all submissions of the run; a run may have several streams.
    """

    origin: str
    lines: BinaryIO | None
    total: int | None
    is_kept: bool


def run_batch(arguments: BatchArguments, named: Mapping[str, Any], stream: TextIO, jsonl: TextIO | None) -> RunTally:
    """Grade every submission without a card, with the named options.

    Progress goes to `stream`, JSON lines to `jsonl`.

    Raises:
        UsageError: an argument is invalid, or another batch uses the run folder.
        InfraError: the machine failed; the same command resumes the run.
        KeyboardInterrupt: the user interrupted; the same command resumes the run.
    """
    options = options_for(named).options
    key = signing_key(options.signing_key, sandboxed=options.is_sandboxed)
    shard = parse_shard(arguments.shard) if arguments.shard else None
    problems = Problems(options.problems, options.sizes, arguments.only, options.entry, options.case)
    with contextlib.ExitStack() as stack:
        # Open the source before the run folder is created, or cleared by --fresh: the source may be refused.
        source = _source(arguments.submissions, problems, stack)
        total = _total(source, arguments.limit) if shard is None else None
        is_new = arguments.fresh or not RunFolder(arguments.run).manifest.exists()
        new_items = _gradable(_items(source, problems, {}, arguments), arguments) if is_new and shard is None else None
        slots, hire = _worker_slots(arguments, options, stack)
        manifest = manifest_for(options, arguments.submissions, problems.level_sizes)
        folder = stack.enter_context(opened(arguments.run, manifest, fresh=arguments.fresh))
        plan = stack.enter_context(PlanFile(folder))
        refusals = stack.enter_context(Refusals(folder, _is_read(source, problems, shard, arguments.limit)))
        items = new_items or named_once(_items(source, problems, plan.by_origin(), arguments))
        if shard is not None:
            items = filter(shard.holds, items)
        _announce(options.device, stream)
        display = stack.enter_context(display_on(stream, total, jsonl=jsonl))
        return Scheduler(
            folder,
            plan,
            refusals,
            itertools.islice(items, arguments.limit),
            options,
            slots,
            display,
            retry=arguments.retry,
            fail_fast=arguments.fail_fast,
            hire=hire,
            key=key,
        ).run()


def _announce(device: DeviceKind, stream: TextIO) -> None:
    """Print the build awaited by the first build error of the run: no stage of a grade names the build."""
    if device is DeviceKind.EMULATED:
        from evaluator.compile.device_builders import to_build_on_error

        with contextlib.suppress(ToolchainMissing):  # Each grade names the missing compiler.
            if text := to_build_on_error(device):
                print(text, file=stream)


def _worker_slots(arguments: BatchArguments, options: GradeOptions, stack: contextlib.ExitStack) -> WorkerSlots:
    if arguments.ray is None:
        return WorkerSlots(slots_for(options.device, arguments.jobs, gpus_for(options)), None)
    # Ray prints messages about lost machines. Writers to stdout already hold the stream.
    stack.enter_context(contextlib.redirect_stdout(sys.stderr))
    return cluster_places(arguments.ray, options, arguments.jobs, stack)


def parse_shard(text: str) -> Shard:
    """Parse `k/n`.

    >>> parse_shard("2/8")
    Shard(number=2, of=8)

    Raises:
        UsageError: the text is no shard.
    """
    match = _SHARD.fullmatch(text)
    if match is None or int(match[1]) > int(match[2]):
        raise UsageError(f"{text!r} is not a shard K/N", hint="--shard 1/4 is the first of four shards")
    return Shard(number=int(match[1]), of=int(match[2]))


def _source(submissions: str, problems: Problems, stack: contextlib.ExitStack) -> SubmissionSource:
    if submissions == STDIN:
        return SubmissionSource("stdin", sys.stdin.buffer, None, is_kept=False)
    path = Path(submissions)
    if path.is_dir():
        return SubmissionSource(submissions, None, expected(path, problems), is_kept=True)
    return SubmissionSource(submissions, stack.enter_context(open_lines(path)), None, is_kept=path.is_file())


def _total(source: SubmissionSource, limit: int | None) -> int | None:
    """Return the number of submissions, or None for a stream or a shard."""
    return source.total if source.total is None or limit is None else min(source.total, limit)


def _is_read(
    source: SubmissionSource, problems: Problems, shard: Shard | None, limit: int | None
) -> Callable[[Refused], bool]:
    """Return whether a complete session comes across an earlier refused input again, unless the input is gone.

    A stream may continue an earlier stream, and a limited session leaves inputs unread.
    """
    if limit is not None or not source.is_kept:
        return lambda _: False
    return lambda refused: (shard is None or shard.holds(refused)) and problems.wants(refused.problem)


def _items(
    source: SubmissionSource, problems: Problems, planned: Mapping[str, Planned], arguments: BatchArguments
) -> Iterator[Item]:
    if source.lines is None:
        return read_folder(Path(source.origin), problems, planned)
    return read_lines(source.lines, source.origin, problems, allows_problem_text=arguments.allow_problem_text)


def _gradable(items: Iterator[Item], arguments: BatchArguments) -> Iterator[Item]:
    """Return the items of a new run, after a look for the first one that is not refused.

    Raises:
        UsageError: all inputs are refused, so the run has nothing to grade.
    """
    items, refused, causes = named_once(items), list[Refused](), RefusedByCause()
    for item in itertools.islice(items, min(arguments.limit or _LOOKED_AT, _LOOKED_AT)):
        if not isinstance(item, Refused):
            return itertools.chain(refused, [item], items)
        refused.append(item)
        causes.add(item)
    if len(refused) == _LOOKED_AT or not refused:
        return itertools.chain(refused, items)
    message = f"nothing in {arguments.submissions} can be graded, so no run begins"
    raise UsageError(message, hint="; ".join(causes.lines))
