"""Timing of the reference, before a submission is loaded and after its runner has ended.

A judge with several submissions of one problem measures both halves once, before and after the first submission, in two
processes. Differences between processes are part of the interval (`timing/stats.py`). After each later submission,
a drift probe in one of the two processes shows whether the GPU is still the one that was measured: if not, the half
after the submission is measured again. Inputs are drawn anew for every call.
"""

import contextlib
import time
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple, Self

from msgspec.structs import replace

from evaluator.devices.gpu import GpuState
from evaluator.errors import JudgeFailed
from evaluator.findings import Trait, has_trait
from evaluator.judge.clock.gpu_monitor import NO_WATCH, ClockWatch
from evaluator.judge.context.grade_context import GradeContext
from evaluator.judge.trial import call_overhead, timing_loop
from evaluator.judge.trial.call_overhead import Overhead
from evaluator.judge.trial.enough_calls import REFERENCE_CALLS
from evaluator.judge.trial.model_runner import ModelRunner
from evaluator.judge.trial.trial_runner import TrialRunner
from evaluator.records import CaseName, DeviceKind, Fault, Samples
from evaluator.sandbox import ConfinedProcess
from evaluator.timing.quote import of_one_kind
from evaluator.timing.stats import interquartile_range, median

AS_REFERENCE = "from model import Model as ModelNew\n"
"""The reference in the form of a submission: timed by the same code in the same kind of runner."""

GOOD_S = 600.0
"""Lifetime of the measured halves: a GPU's clocks change, and so do other processes with a context."""

_DRIFT, _DRIFT_MS = 0.003, 0.0001
"""Difference of a probe from the halves that is no drift, beside their own scatter."""

_DISTURBED = 0.05
"""Relative difference of two halves above which one of them was disturbed, as of finding T301."""

_SCATTER = 3.0
"""Standard deviations of the halves' samples within which a probe lies."""

_IQR_OF_NORMAL = 1.349
"""Interquartile range of a normal distribution, in standard deviations."""

_REST_S = 1.0
"""Pause unit: three immediate tries would end before most disturbances. Each try waits one unit longer."""

_IN_TURN = 2
_BEFORE, _AFTER = "reference_before", "reference_after"


class Reading(NamedTuple):
    """A half of the reference's side: samples, call overhead, and the GPU's state at the end, `measured_s`."""

    samples: Samples
    overhead: Overhead
    gpu_state: GpuState | None
    measured_s: float = 0.0


class After(NamedTuple):
    """The half after a submission, the age of the half before, and the time of a drift probe, if any."""

    samples: Samples
    before_age_s: float
    probe_ms: float | None


def agree(before: Samples, after: Samples) -> bool:
    """Return whether two halves are good for later submissions: a disturbed half would be in all of their cards."""
    one, other = of_one_kind([before, after])
    return abs(one.median_ms - other.median_ms) <= _DISTURBED * max(one.median_ms, other.median_ms) + _DRIFT_MS


def has_drifted(probe_ms: float, halves: list[Samples]) -> bool:
    """Return whether a call takes longer or shorter than in the measured halves, beyond their own scatter."""
    times_ms = [time_ms for half in of_one_kind(halves) for time_ms in half.samples_ms]
    usual_ms, spread_ms = median(times_ms), interquartile_range(times_ms) / _IQR_OF_NORMAL
    return abs(probe_ms - usual_ms) > _DRIFT * usual_ms + _DRIFT_MS + _SCATTER * spread_ms


class ReferenceTimer:
    """Timer of one problem's reference. A context manager: the exit ends all kept runners."""

    def __init__(self, context: GradeContext, *, lasting: bool = False) -> None:
        """Measure nothing yet. `lasting` keeps reusable runners and measurements until the exit."""
        self._context = context
        self._lasting = lasting
        self._kept = contextlib.ExitStack()
        self._trial_runners: deque[TrialRunner] = deque()
        self._starting: deque[ModelRunner] = deque()
        self._runners: list[ConfinedProcess] = []
        self._before: Reading | None = None
        self._after: Reading | None = None
        self._further: dict[CaseName, ReferenceTimer] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the kept runners, and forget the measurements."""
        self.rest()
        self._further.clear()
        self._before = self._after = None

    def rest(self) -> None:
        """End the kept runners, for example for the memory of a further case. Measurements stay.

        All end in parallel: releasing a GPU context takes a tenth of a second.
        """
        for runner in self._runners:
            runner.condemn()
        self._runners.clear()
        self._kept.close()
        self._trial_runners.clear()
        self._starting.clear()

    @contextlib.contextmanager
    def at(self, case: CaseName, *, is_hidden: bool) -> Iterator["ReferenceTimer"]:
        """Yield the timer of a further case, at which the context is; its runners end with the block.

        Like the timer of the card's own case, a lasting timer keeps the measurements for later submissions, except of
        hidden cases.
        """
        keeps = self._lasting and not is_hidden
        timer = self._further.get(case) or ReferenceTimer(self._context, lasting=keeps)
        if keeps:
            self._further[case] = timer
        try:
            yield timer
        finally:
            timer.rest()

    def settle(self) -> None:
        """Wait for the runners of `_begin`: none may still be starting while a call is timed."""
        while self._starting:
            self._trial_runners.appendleft(self._ready(self._starting.popleft()))

    def before(self) -> Reading:
        """Return the half before a submission. No code of a submission may run."""
        if self._before is not None and time.monotonic() - self._before.measured_s <= GOOD_S:
            session, state = self._context.gpu_session, self._before.gpu_state
            if session is None or state is None or session.monitor.resumes(state):
                return self._before
        self._context.settle()
        self._begin()
        self._before, self._after = self._measured(_BEFORE, None), None
        return self._before

    @property
    def kept_after(self) -> Samples | None:
        """The half after an earlier submission, which `after` returns again unless the GPU has changed."""
        return None if self._after is None else self._after.samples

    def after(self) -> After:
        """Return the half after a submission, whose runner has ended."""
        before, after = self._before, self._after
        if before is None:
            raise RuntimeError("the half before the submission was not measured")
        age_s = time.monotonic() - before.measured_s
        probe_ms = None if after is None else self._probe_ms(before, after.samples)
        if after is not None and probe_ms is not None and not has_drifted(probe_ms, [before.samples, after.samples]):
            return After(after.samples, age_s, probe_ms)
        if after is not None and probe_ms is None:
            self.rest()  # A runner may still owe the answer to the probe.
        self._after = self._measured(_AFTER, before.overhead)
        if after is not None or not self._lasting or not agree(before.samples, self._after.samples):
            self._before = None  # The GPU is another than before: the next submission has both halves anew.
        return After(self._after.samples, age_s, probe_ms)

    def _probe_ms(self, before: Reading, after: Samples) -> float | None:
        """Return the time of a call of the reference now, in ms; None if it could not be measured."""
        windows = of_one_kind([before.samples, after])[0].windows
        with self._runner() as trial_runner:
            seeds, timeout_s = self._context.seeds.timed(_AFTER), self._context.call_timeout_s
            probe_ms = timing_loop.probe(trial_runner, seeds, before.overhead, windows, timeout_s)
        if self._context.gpu_session is not None:
            self._context.gpu_session.monitor.sample()
        return probe_ms

    def _begin(self) -> None:
        """Start the runners of both halves, if memory allows."""
        may_start = self._lasting or self._context.terms.device is DeviceKind.CUDA
        if not may_start or self._trial_runners or self._starting or not self._context.backend.room_for(_IN_TURN):
            return
        for _ in range(_IN_TURN):
            model_runner = self._kept.enter_context(self._context.runners.start(AS_REFERENCE, trusted=True))
            self._runners.append(model_runner.session.child)
            if self._context.gpu_session is not None:
                self._context.gpu_session.add_own(model_runner.session.child.members())
            if (fault := model_runner.begin()) is not None:
                raise _failed(fault)
            self._starting.append(model_runner)

    def _measured(self, name: str, known: Overhead | None) -> Reading:
        with self._runner() as trial_runner:
            overhead = known or call_overhead.measured(trial_runner, self._context.call_timeout_s)
            if isinstance(overhead, Fault):
                raise _failed(overhead)
            watch, is_first = self._context.begin_side(), known is None
            samples = self._undisturbed(name, trial_runner, overhead, watch, spot_checks=is_first)
            gpu_session = self._context.gpu_session
            gpu_state = None if gpu_session is None else gpu_session.monitor.sample()
        if overhead.spot is not None:
            overhead = overhead._replace(spot=overhead.spot.beside(samples.windows))
        return Reading(samples, overhead, gpu_state, time.monotonic())

    def _undisturbed(
        self,
        name: str,
        trial_runner: TrialRunner,
        overhead: Overhead,
        watch: ClockWatch = NO_WATCH,
        *,
        spot_checks: bool = True,
    ) -> Samples:
        """Measure a half; repeat after a disturbance by other work on the GPU.

        The submission's spot checks are compared with those of the half before.
        """
        message, first_call_ms = "", 0.0
        for number in range(timing_loop.TRIES):
            time.sleep(number * _REST_S)
            seeds, timeout_s = self._context.seeds.timed(name), self._context.call_timeout_s
            side = timing_loop.side(
                name,
                trial_runner,
                seeds,
                overhead,
                timeout_s,
                at_least=REFERENCE_CALLS,
                trusted=True,
                spot_checks=spot_checks,
                watch=watch,
            )
            if side.samples is not None:  # Only the first try includes a true first call.
                first_call_ms = max(first_call_ms, side.samples.first_call_ms)
                if side.failed is None:
                    return replace(side.samples, first_call_ms=first_call_ms)
            fault = side.failed.fault if side.failed is not None else None
            message = fault.finding.message if fault is not None else "no samples"
            if fault is None or not has_trait(fault.finding, Trait.DISTURBED_CLOCK):
                raise JudgeFailed(
                    f"the reference fails its own check: {message}",
                    hint="the output may depend on more than inputs and weights; see `warpgrade problems show`",
                )
        raise JudgeFailed(
            f"other work disturbed the reference {timing_loop.TRIES} times: {message}",
            hint="end other work on this GPU, or choose another GPU with --gpu",
        )

    @contextlib.contextmanager
    def _runner(self) -> Iterator[TrialRunner]:
        """Yield a runner of the reference, which never holds a submission: one of two in turn, or a new runner."""
        self.settle()
        if self._trial_runners:
            self._trial_runners.rotate()
            yield self._trial_runners[0]
        else:
            with self._context.runners.start(AS_REFERENCE, trusted=True) as model_runner:
                if (fault := model_runner.begin()) is not None:
                    raise _failed(fault)
                yield self._ready(model_runner)

    def _ready(self, model_runner: ModelRunner) -> TrialRunner:
        """Wait for a runner. Freeze the weights if the runner would have to copy weights on its own time."""
        constructed = model_runner.begun()
        if isinstance(constructed, Fault):
            raise _failed(constructed)
        if model_runner.sites(constructed).copied:
            self._context.reference.weights.leave("the reference's own do not lie in memory that the judge shares")
        return model_runner.trial_runner(model_runner.sites(constructed))


def _failed(fault: Fault) -> JudgeFailed:
    """Return the error for a failure of the reference's runner, which is never the submission's fault."""
    return JudgeFailed(f"the reference's own runner failed: {fault.finding.message}")
