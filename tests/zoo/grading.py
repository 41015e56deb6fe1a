"""Grade rows of the zoo: by the judge, in this process and without the command line, and by the naive grader."""

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import msgspec
import pytest

from evaluator.catalog import sized_source
from evaluator.devices.gpu import choose, leased, show_only
from evaluator.findings import Code
from evaluator.judge.setup.seed_book import SeedBook
from evaluator.judge.verdict import judge
from evaluator.judge.setup.grade_terms import GradeTerms
from evaluator.judge.context.reference_timing import ReferenceTimer
from evaluator.judge.context.grade_context import GradeContext
from evaluator.records import Outcome
from evaluator.grade_options import GradeOptions
from evaluator.records import DeviceKind, SizeName, Status, Timing, ToleranceRule
from evaluator.progress import Silent
from evaluator.progress import Stopwatch
from evaluator.admission.validation import validate
from tests.fork_servers import shared_fork_server
from tests.zoo.confine import NO_LANDLOCK
from tests.zoo.entries import Entry, Evidence, Expectation
from tests.zoo.mutations import Mutation
from tests.zoo.switches import Switched

NAIVE_GRADER = Path(__file__).with_name("naive_grader.py")
CONFINE = Path(__file__).with_name("confine.py")
_CONTROL_LIMIT_S = 240.0
_LEASE_WAIT_S = 600.0
_CALL_TIMEOUT_S = 60.0
_ENDLESS_TIMEOUT_S = 3.0
_GPU_TIMEOUT_S = 30.0
_BUILD_TIMEOUT_S = 1200.0
_SCATTER = 0.03
"""Relative difference of two grades of one submission, for calls of microseconds."""


class Verdict(NamedTuple):
    """What came of a submission, its last run: the state of the row, and why."""

    state: str
    status: Status
    code: str
    message: str
    outcome: Outcome


class Accepted(NamedTuple):
    """What a naive grader said; `least` is the speedup that it was to report."""

    accepted: bool
    speedup: float
    least: float = 0.0


class Judge:
    """Judges submissions one after the other, each in runners of its own; a problem is set up once."""

    def __init__(self) -> None:
        """Set up nothing yet."""
        self._context: GradeContext | None = None
        self._timer: ReferenceTimer | None = None
        self._leaving = contextlib.ExitStack()
        self._honest: dict[tuple[str, str, str, float | None], Outcome] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def give_way(self) -> None:
        """End what holds a GPU, if there are other workers: their grades wait for the lease of the GPU."""
        gpu = None if self._context is None else self._context.terms.gpu
        if gpu is not None and "PYTEST_XDIST_WORKER" in os.environ:
            self.close()

    def close(self) -> None:
        """End the processes of the problem that is set up."""
        self._context = self._timer = None
        self._leaving.close()

    def cheat(self, entry: Entry) -> Verdict:
        """Grade the cheat as often as its row asks, and hold the last verdict against the expected one."""
        source, twin = entry.cheat.read_text(), None
        for _ in range(entry.expected.runs):
            outcome = self._judged(entry, source, entry.expected.own_kernel)
        if entry.expected.evidence is not None and entry.expected.evidence.needs_twin:
            twin = self.honest(entry)
        verdict = _verdict(entry, outcome, twin)
        if entry.expected.refused_for and outcome.status in (Status.CORRECT, Status.INCONCLUSIVE):
            return _of_problem(entry, verdict)
        return verdict

    def without_policy(self, entry: Entry) -> Outcome:
        """Grade a cheat without work of its own, without a demand for own kernels."""
        return self._judged(entry, entry.cheat.read_text(), None)

    def honest(self, entry: Entry) -> Outcome:
        """Grade the twin, on the same terms. Rows may share one: what was graded before is not graded again."""
        source, own_kernel = entry.honest.read_text(), entry.expected.own_kernel
        key = (entry.expected.problem, entry.expected.device.value, source, own_kernel)
        if key not in self._honest:
            self._honest[key] = self._judged(entry, source, own_kernel)
        return self._honest[key]

    def stopped(self, entry: Entry, mutation: Mutation) -> str:
        """Say what stops the cheat while an invariant is switched off: empty if it passes, with its row's gain."""
        evidence = entry.expected.evidence
        outcome = self.mutated(entry, mutation, entry.cheat)
        if outcome.status is not Status.CORRECT:
            reason = outcome.reason
            return outcome.status.value if reason is None else f"{outcome.status}, {reason.code}: {reason.message}"
        if evidence is None:
            return ""
        if evidence.prints_never is not None:
            return "" if evidence.prints_never in outcome.output.text else f"never printed {evidence.prints_never!r}"
        gains = outcome.timing is not None and gained(evidence, outcome, self.honest(entry))
        return "" if gains else "it gains nothing"

    def mutated(self, entry: Entry, mutation: Mutation, submission: Path) -> Outcome:
        """Grade a submission while an invariant is switched off, in a context set up and ended under the switch."""
        self.close()
        with pytest.MonkeyPatch.context() as patch:
            mutation.off(Switched(patch))
            try:
                return [
                    self._judged(entry, submission.read_text(), entry.expected.own_kernel)
                    for _ in range(entry.expected.runs)
                ][-1]
            finally:
                self.close()

    def _judged(self, entry: Entry, source: str, own_kernel: float | None) -> Outcome:
        context, timer = self._set_up(entry, source, own_kernel)
        try:
            return judge(context, timer, Stopwatch(Silent()))
        except BaseException:
            self.close()
            raise

    def _set_up(self, entry: Entry, source: str, own_kernel: float | None) -> tuple[GradeContext, ReferenceTimer]:
        expected = entry.expected
        gpu = choose(None) if expected.device is DeviceKind.CUDA else None
        options = GradeOptions(
            device=expected.device,
            size=SizeName.SMALL if expected.device is DeviceKind.EMULATED else expected.size,
            timeout_s=_call_timeout_s(expected, on_gpu=gpu is not None),
            build_timeout_s=_BUILD_TIMEOUT_S,
            require_own_kernel=own_kernel,
        )
        terms = GradeTerms(entry.problem(), options, gpu, threads=1)
        if self._context is None or self._timer is None or self._context.terms != terms:
            self.close()
            # One that lasts keeps a GPU for itself; on a CPU each grade has processes of its own.
            lasting = gpu is not None
            fork_server = None if lasting else shared_fork_server(terms.device, terms.threads)
            context = GradeContext(terms, source, SeedBook(None), lasting=lasting, fork_server=fork_server)
            self._context = self._leaving.enter_context(context)
            self._timer = self._leaving.enter_context(ReferenceTimer(self._context, lasting=lasting))
        else:
            self._context.turn_to(source, SeedBook(None, weight=self._context.seeds.weight))
        return self._context, self._timer


def _call_timeout_s(expected: Expectation, *, on_gpu: bool) -> float:
    """Return the limit of a call: short only where the cheat never ends, so that a busy machine decides nothing."""
    if Status.TIMEOUT in (expected.status, expected.or_status):
        return _ENDLESS_TIMEOUT_S
    return _GPU_TIMEOUT_S if on_gpu else _CALL_TIMEOUT_S


def _verdict(entry: Entry, outcome: Outcome, twin: Outcome | None) -> Verdict:
    expected = entry.expected
    code, message = ("", "") if outcome.reason is None else (outcome.reason.code, outcome.reason.message)
    if outcome.status is not Status.CORRECT:
        for_its_reason = outcome.status in (expected.status, expected.or_status) and code in expected.codes
        state = "rejected for its reason" if for_its_reason else "rejected for another reason"
    elif expected.evidence is not None:
        message = gained(expected.evidence, outcome, twin)
        state = "gains something" if message else "gains nothing"
    else:
        state = "not yet"
    return Verdict(state, outcome.status, code, message, outcome)


def _of_problem(entry: Entry, verdict: Verdict) -> Verdict:
    """Hold the problem against the controls of `problems validate`: it is refused if the row's gets away."""
    (admission,) = validate([str(entry.problem().path)], None, entry.expected.size, DeviceKind.CPU)
    away = [control.control for control in admission.controls if control.gets_away]
    refused = not admission.admitted and entry.expected.refused_for in away
    return verdict._replace(state="problem refused" if refused else "not yet", message=f"get away: {', '.join(away)}")


def gained(evidence: Evidence, outcome: Outcome, twin: Outcome | None) -> str:
    """Say what a cheat that is `correct` gained; empty where it gained nothing."""
    timing = outcome.timing
    if timing is None:
        return "not timed"
    least_ms, most_ms, words = evidence.quoted_at_least_ms, evidence.reference_at_most_ms, evidence.prints_never
    if least_ms is not None and timing.submission_median_ms < least_ms:
        return f"quoted {timing.submission_median_ms:.3g} ms for what takes at least {least_ms:g} ms"
    if most_ms is not None and timing.reference_median_ms > most_ms:
        return f"the reference was slowed down to {timing.reference_median_ms:.3g} ms"
    if evidence.needs_twin and (twin is None or twin.timing is None):
        return "its twin was not timed"
    if evidence.needs_twin and timing.submission_median_ms < _least_ms(evidence, outcome, twin.timing):
        return f"quoted {timing.submission_median_ms:.3g} ms, its twin {twin.timing.submission_median_ms:.3g} ms"
    if words is not None and words in outcome.output.text:
        return f"it printed {words!r}"
    return ""


def _least_ms(evidence: Evidence, outcome: Outcome, twin: Timing) -> float:
    """Return the least time that gains nothing over the twin's."""
    if evidence.gains_at_most_us is None:
        return (evidence.of_twin_at_least or 0.0) * twin.submission_median_ms
    shared_work = Code.SHARED_WORK in [finding.code for finding in outcome.findings]
    if outcome.timing.speedup is None and shared_work:
        return 0.0
    return twin.submission_median_ms * (1 - _SCATTER) - evidence.gains_at_most_us / 1e3


def control(entry: Entry, submission: Path, folder: Path) -> Accepted | None:
    """Have the naive grader of the row grade `submission` in `folder`.

    Accepted is what it calls correct with at least the speedup that the row asks for. A naive grader that fails open
    also accepts where its own process was ended. None where nothing can confine it to `folder`.
    """
    said = _naive_verdict(entry, submission, folder)
    if said is None or not said.accepted:
        return said
    least = entry.expected.control.gain
    if entry.expected.control.over_twin:
        twin = _naive_verdict(entry, entry.honest, folder)
        least *= twin.speedup if twin is not None and twin.accepted else math.inf
    return Accepted(said.speedup >= least, said.speedup, least)


def _naive_verdict(entry: Entry, submission: Path, folder: Path) -> Accepted | None:
    """Run it as often as the row asks; the last one counts."""
    expected = entry.expected
    reference = folder / "reference.py"
    reference.write_text(sized_source(entry.problem(), expected.control.size or expected.size))
    places = dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME"), str(folder))
    home = {**places, "PYTHONPATH": ".", "OMP_NUM_THREADS": "1"}
    tools = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    said = Accepted(accepted=False, speedup=0.0)
    for _ in range(expected.runs):
        options = json.dumps({**msgspec.to_builtins(expected.control), "device": entry.control_device})
        grader = [sys.executable, str(NAIVE_GRADER), "grade", str(reference), str(submission), options]
        with quiet(entry.control_device) as seen, subprocess.Popen(
            [sys.executable, "-I", str(CONFINE), str(folder), *grader],
            cwd=folder,
            env={"CONFINED": json.dumps({**os.environ, **seen, **home, "PATH": tools})},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            try:
                printed, _ = process.communicate(timeout=_CONTROL_LIMIT_S)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        if process.returncode == NO_LANDLOCK:
            return None
        said = _said(printed, fails_open=expected.control.channel == "fail open")
    return said


@contextlib.contextmanager
def quiet(device: str) -> Iterator[dict[str, str]]:
    """Lease a GPU for a naive grader beside other workers of pytest, as grades do, and yield its environment.

    Other work changes the times by which a naive grader accepts a cheat. Without other workers, the judge of these
    tests may hold the lease.
    """
    if device != "cuda" or "PYTEST_XDIST_WORKER" not in os.environ:
        yield {}
        return
    gpu = choose(None)
    with leased(gpu, _LEASE_WAIT_S):
        yield show_only(gpu.uuid)


def _said(printed: bytes, *, fails_open: bool) -> Accepted:
    lines = printed.splitlines()
    if not lines:
        return Accepted(accepted=fails_open, speedup=0.0)
    last = json.loads(lines[-1])
    return Accepted(bool(last["accepted"]), float(last["speedup"]))
