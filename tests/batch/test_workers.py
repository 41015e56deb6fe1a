"""Real workers and real grades: what dies costs only itself, and no process is left."""

import contextlib
import fcntl
import itertools
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from evaluator.batch.runs.results import read_run
from evaluator.batch.workers.messages import GradePart, NotGraded, receive_reply, send
from evaluator.batch.workers.slots import slots_for
from evaluator.errors import UsageError
from evaluator.files.card_files import read_card
from evaluator.judge.context import reference_timing
from evaluator.records import DeviceKind, Status
from evaluator.sandbox.scratch_folders import remove_abandoned
from tests.grading.harness import TOP, Grader, module, nobody_left_behind, passable_folder
from tests.library import grade_stream
from warpgrade import Candidate

pytestmark = pytest.mark.process

RIGHT = module()
WRONG = module(forward=("return torch.relu(x) + 1",))
CRASHING = module("import os", forward=("os.abort()",))
NOT_PYTHON = "class ModelNew(:\n"
WITH_CPP = module(
    "from torch.utils.cpp_extension import load_inline",
    "ext = load_inline('ours', cpp_sources='torch::Tensor ours(torch::Tensor x) { return x.clamp_min(0); }',"
    " functions=['ours'])",
    forward=("return ext.ours(x)",),
)
KINDS = {
    "right": (RIGHT, Status.CORRECT),
    "wrong": (WRONG, Status.WRONG_RESULT),
    "crashing": (CRASHING, Status.RUNTIME_ERROR),
    "broken": (NOT_PYTHON, Status.BUILD_ERROR),
    "cpp": (WITH_CPP, Status.CORRECT),
}
SLEEPING = module("import time", forward=("time.sleep(600)",))
_LIMIT_S = 900


@pytest.fixture(scope="module")
def grader():
    with passable_folder() as cache, passable_folder() as temporary:
        yield Grader(cache, temporary)


@pytest.fixture
def started(grader, tmp_path):
    """Starts a batch on `submissions` in a folder of its own."""

    @contextlib.contextmanager
    def start(*options):
        command = [sys.executable, str(TOP / "cli.py"), "batch", "submissions", "--run", "run"]
        arguments = ["--device", "cpu", "--size", "awkward", "--timeout", "20", *options]
        with subprocess.Popen(
            [*command, *arguments],
            cwd=tmp_path,
            env=grader.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    return start


def hand_in(tmp_path, kinds, count):
    """Write `count` submissions to relu, of all `kinds`; say what must come of each."""
    expected = {}
    (tmp_path / "submissions/relu").mkdir(parents=True)
    for number in range(count):
        source, status = KINDS[kinds[number % len(kinds)]]
        (tmp_path / f"submissions/relu/s{number:02}.py").write_text(f"{source}# {number}\n")
        expected[f"s{number:02}"] = status
    return expected


def cards(tmp_path):
    return {path.stem: read_card(path) for path in (tmp_path / "run/cards").glob("relu/*.json")}


def workers_of(process):
    """Find the batch's workers."""
    with contextlib.suppress(psutil.NoSuchProcess):
        yield from psutil.Process(process.pid).children()


def grades_of(process):
    """Find the processes that make grades: the children of the batch's workers, which judge or start runners."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for worker in workers_of(process):
            yield from worker.children()


def judges_of(process):
    """Find the judges: processes forked from a worker, after its fork server.

    A fork server executes another program; until then it looks like a judge.
    """
    with contextlib.suppress(psutil.NoSuchProcess):
        for worker in workers_of(process):
            children = worker.children()
            judges = [each for each in children if each.cmdline() == worker.cmdline()]
            yield from judges if len(judges) < len(children) else ()


def signals_not_blocked_in(process, *numbers):
    """Give `numbers` if the process blocks none of them: for an instant, the C library blocks all around a fork."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{process.pid}/status").read_text().splitlines())
    blocked = int(status["SigBlk"], 16)
    return () if any(blocked >> (number - 1) & 1 for number in numbers) else numbers


def awaited(find, *arguments):
    """Wait until `find` finds something, and give it."""
    deadline = time.monotonic() + 600
    while not (found := list(find(*arguments))):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


@pytest.mark.long
def test_a_killed_judge_and_a_killed_runner_cost_one_attempt_each(started, grader, tmp_path):
    """The reference's runner stays from one submission to the next; it may be killed in between."""
    expected = hand_in(tmp_path, ["right"], 2)
    with nobody_left_behind(), started("--jobs", "1") as process:
        awaited(judges_of, process)[0].kill()
        awaited(cards, tmp_path)
        for each in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if not each.children():
                    each.kill()
        _, err = process.communicate(timeout=_LIMIT_S)
    assert process.returncode == 0, err
    assert {name: card.status for name, card in cards(tmp_path).items()} == expected
    assert "attempt 2" in (tmp_path / "run/logs/batch.log").read_text()
    remove_abandoned(grader.temporary)  # The next fork server does the same; a killed grade cannot.
    assert list(grader.temporary.glob("warpgrade*")) == []


@pytest.mark.parametrize("find", [grades_of, judges_of])
def test_ctrl_c_leaves_nobody_and_nothing(started, grader, tmp_path, find):
    """States of a worker: importing PyTorch (with a fork server), grading (with a judge)."""
    hand_in(tmp_path, ["right"], 3)
    with nobody_left_behind(), started() as process:
        awaited(find, process)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=240)
    assert process.returncode == 130, err
    assert b"repeat the command to resume" in err
    assert b"Traceback" not in err
    assert list(grader.temporary.glob("warpgrade*")) == []


def test_ctrl_c_leaves_no_folder_of_a_judge_that_hangs(started, grader, tmp_path):
    """A stopped judge removes no folder, and is killed after a grace period."""
    hand_in(tmp_path, [], 0)
    (tmp_path / "submissions/relu/sleeping.py").write_text(SLEEPING)
    with nobody_left_behind(), started() as process:
        (judge,) = awaited(judges_of, process)
        awaited(grader.temporary.glob, "warpgrade-run-*")
        awaited(signals_not_blocked_in, judge, signal.SIGINT, signal.SIGTERM)
        judge.suspend()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=240)
    assert process.returncode == 130, err
    assert list(grader.temporary.glob("warpgrade*")) == []


@pytest.mark.long
@pytest.mark.slow
def test_chaos(started, grader, tmp_path):
    """Twelve submissions, the batch killed three times, and grades of it in between: twelve right cards at the end.

    `benchmarks/batch/batch_chaos.py` does the same to as many as it is told.
    """
    expected = hand_in(tmp_path, list(KINDS), 12)
    chance = random.Random(8)
    seen: dict[str, str] = {}
    for _ in range(3):
        with nobody_left_behind(), started("--jobs", "2") as process:
            until = time.monotonic() + chance.uniform(4, 12)
            while time.monotonic() < until and process.poll() is None:
                time.sleep(chance.uniform(0.5, 3))
                victims = list(grades_of(process))
                if victims and chance.random() < 0.15:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        chance.choice(victims).kill()
            process.kill()
            process.communicate(timeout=240)
        now = {name: card.graded_at for name, card in cards(tmp_path).items()}
        assert {name: now.get(name) for name in seen} == seen  # nothing is lost, and nothing graded twice
        seen = now
    with nobody_left_behind(), started("--jobs", "2") as process:
        _, err = process.communicate(timeout=_LIMIT_S)
    assert process.returncode == 1, err
    found = cards(tmp_path)
    assert {name: card.status for name, card in found.items()} == expected
    assert {name: found[name].graded_at for name in seen} == seen
    assert len(read_run(tmp_path / "run").entries) == len(expected)
    remove_abandoned(grader.temporary)  # of what was killed last; every start does so
    assert list(grader.temporary.glob("warpgrade*")) == []


def test_submissions_of_a_problem_share_the_reference_and_no_inputs(started, tmp_path):
    """The reference is measured once, and a drift probe follows each later submission."""
    expected = hand_in(tmp_path, ["right", "wrong", "right"], 3)
    with nobody_left_behind(), started("--jobs", "1") as process:
        _, err = process.communicate(timeout=_LIMIT_S)
    found = cards(tmp_path)
    assert {name: card.status for name, card in found.items()} == expected, err
    first, second = found["s00"].timing, found["s02"].timing
    assert second.reference_before.side == "reference_before"
    assert found["s00"].seeds.weight == found["s02"].seeds.weight
    drawn = [{each.seed for each in card.checks} for card in found.values()]
    drawn += [set(timing.submission.seeds) for timing in (first, second)]
    assert len(set.union(*drawn)) == sum(map(len, drawn))
    halves = [first.reference_before, first.reference_after]
    # On a busy machine, the halves may disagree, and the probe may differ.
    are_kept = reference_timing.agree(*halves)
    assert (first.reference_before.samples_ms == second.reference_before.samples_ms) == are_kept
    assert (first.drift_probe_ms is None, second.drift_probe_ms is None) == (True, not are_kept)
    if are_kept:
        has_drifted = first.reference_after.samples_ms != second.reference_after.samples_ms
        assert has_drifted == reference_timing.has_drifted(second.drift_probe_ms, halves)
        assert second.reference_age_s > first.reference_age_s > 0


def test_a_program_grades_and_leaves_nobody_when_it_loses_interest(grader, monkeypatch):
    monkeypatch.setenv("WARPGRADE_CACHE", grader.environment["WARPGRADE_CACHE"])
    with nobody_left_behind():
        candidates = [Candidate("relu", KINDS[kind][0], kind) for kind in ("right", "wrong", "crashing")]
        endless = (Candidate("relu", RIGHT) for _ in iter(int, 1))
        graded, found = (
            grade_stream(itertools.chain(candidates, endless), device="cpu", size="awkward", timeout_s=20),
            {},
        )
        while len(found) < len(candidates):
            candidate, card = next(graded)
            if candidate in candidates:
                found[candidate.name] = card.status
        graded.close()
    assert found == {kind: KINDS[kind][1] for kind in ("right", "wrong", "crashing")}


def test_a_reply_is_read_from_a_descriptor_of_any_number():
    """A service has a descriptor for each of its connections; `select` refuses those above 1023."""
    replies, its_replies = os.pipe()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1200, limits[1]))
    high = fcntl.fcntl(replies, fcntl.F_DUPFD_CLOEXEC, 1100)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    try:
        send(its_replies, NotGraded(reason="read", again=False))
        assert receive_reply(high, 60) == NotGraded(reason="read", again=False)
    finally:
        for descriptor in (replies, its_replies, high):
            os.close(descriptor)


def test_cores_are_shared_out(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(7)))
    assert [slot.cores for slot in slots_for(DeviceKind.CPU, None)] == [()]
    assert [slot.cores for slot in slots_for(DeviceKind.CPU, 3)] == [(0, 1), (2, 3), (4, 5)]
    assert len(slots_for(DeviceKind.EMULATED, None)) == 7
    assert [slot.builds_at_once for slot in slots_for(DeviceKind.EMULATED, 3)] == [3, 3, 3]
    on_gpus = slots_for(DeviceKind.CUDA, 3, ["a", "b"])
    assert [(slot.gpu, slot.part) for slot in on_gpus[:2]] == [("a", GradePart.FINISH), ("b", GradePart.FINISH)]
    assert [slot.part for slot in on_gpus[2:]] == [GradePart.BEGIN] * 3
    assert len(slots_for(DeviceKind.CUDA, None, ["a"])) == 1 + 7
    assert {slot.cores for slot in slots_for(DeviceKind.CUDA, None, ["a"])} == {()}
    with pytest.raises(UsageError, match="cores cannot time"):
        slots_for(DeviceKind.CPU, 8)


@pytest.mark.parametrize(
    ("gpus", "jobs", "building", "builders"),
    [(["a"], None, range(2, 16), 14), (["a", "b"], None, range(4, 16), 12), (["a"], 3, range(2, 16), 3)],
)
def test_builds_leave_two_cores_to_each_gpu(monkeypatch, gpus, jobs, building, builders):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    slots = slots_for(DeviceKind.CUDA, jobs, gpus)
    assert [(slot.gpu, slot.cores) for slot in slots if slot.part is GradePart.FINISH] == [(gpu, ()) for gpu in gpus]
    assert [slot.cores for slot in slots if slot.part is GradePart.BEGIN] == [tuple(building)] * builders


def test_few_cores_are_shared_with_builds(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    slots = slots_for(DeviceKind.CUDA, None, ["a", "b", "c"])
    assert [(slot.part, slot.cores) for slot in slots] == [(GradePart.FINISH, ())] * 3 + [(GradePart.BEGIN, ())] * 16
