"""Timing of the reference, before the submission's runner starts and after the submission's runner has ended.

A judge with several submissions of one problem keeps runners of the reference and their measured call overhead, if
memory allows. Inputs are drawn anew for every call. A side measured after one submission also counts as the side before
the next, if recent: the order is reference, submission, reference, submission, reference. Two runners alternate, so the
two sides of a submission come from two processes, as in a single grade. Differences between processes are part of the
interval (`timing/bootstrap.py`).
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
from evaluator.judge.backend.clock_watch import NO_WATCH, ClockWatch
from evaluator.judge.context.grade_context import GradeContext
from evaluator.judge.trial import timing_loop
from evaluator.judge.trial.enough_calls import REFERENCE_CALLS
from evaluator.judge.trial.model_runner import ModelRunner
from evaluator.judge.trial.trial_runner import TrialRunner
from evaluator.records import DeviceKind, Fault, Samples
from evaluator.sandbox import ConfinedProcess

AS_REFERENCE = "from model import Model as ModelNew\n"
"""The reference in the form of a submission: timed by the same code in the same kind of runner."""

RECENT_S = 10.0
"""Maximum age of a side measured after one submission, to count as measured before the next."""

OVERHEAD_GOOD_S = 60.0
"""Lifetime of a measured call overhead: a GPU's clocks change, and so do other processes with a context."""

_REST_S = 1.0
"""Pause unit: three immediate tries would end before most disturbances. Each try waits one unit longer."""

_IN_TURN = 2
_BEFORE, _AFTER = "reference_before", "reference_after"


class Reading(NamedTuple):
    """One side of the reference: samples, call overhead, and the GPU's state at the end."""

    samples: Samples
    overhead: timing_loop.Overhead
    gpu_state: GpuState | None


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
        self._overhead: timing_loop.Overhead | None = None
        self._overhead_s = 0.0
        self._recent: tuple[Reading, float] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the kept runners in parallel: releasing a GPU context takes a tenth of a second."""
        for runner in self._runners:
            runner.condemn()
        self._runners.clear()
        self._kept.close()
        self._trial_runners.clear()
        self._starting.clear()
        self._recent = None

    def begin(self) -> None:
        """Start the runners of both sides during the submission's check, if memory allows."""
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

    def settle(self) -> None:
        """Wait for the runners of `begin`: none may still be starting while a call is timed."""
        while self._starting:
            self._trial_runners.appendleft(self._ready(self._starting.popleft()))

    def before(self) -> Reading:
        """Return the side before a submission. No runner may hold the submission yet."""
        if self._recent is not None:
            reading, measured_s = self._recent
            self._recent = None
            if time.monotonic() - measured_s <= RECENT_S:
                if self._context.gpu_session is not None and reading.gpu_state is not None:
                    self._context.gpu_session.monitor.reuse(reading.gpu_state)
                return reading._replace(samples=replace(reading.samples, side=_BEFORE))
        return self._measured(_BEFORE)

    def after(self) -> Samples:
        """Measure the side after a submission, whose runner has ended."""
        reading = self._measured(_AFTER)
        if self._lasting:
            self._recent = reading, time.monotonic()
        return reading.samples

    def _measured(self, name: str) -> Reading:
        with self._runner() as trial_runner:
            overhead = self._known_overhead(trial_runner)
            samples = self._undisturbed(name, trial_runner, overhead, self._context.begin_side())
            gpu_session = self._context.gpu_session
            gpu_state = None if gpu_session is None else gpu_session.monitor.sample()
        if overhead.spot is not None:
            overhead = overhead._replace(spot=overhead.spot.beside(samples.windows))
        return Reading(samples, overhead, gpu_state)

    def _undisturbed(
        self, name: str, trial_runner: TrialRunner, overhead: timing_loop.Overhead, watch: ClockWatch = NO_WATCH
    ) -> Samples:
        """Measure a side; repeat after a disturbance by other work on the GPU."""
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

    def _known_overhead(self, trial_runner: TrialRunner) -> timing_loop.Overhead:
        """Return the call overhead: the recent value, or a new measurement in `trial_runner`."""
        if self._overhead is None or time.monotonic() - self._overhead_s > OVERHEAD_GOOD_S:
            measured = timing_loop.overhead(trial_runner, self._context.call_timeout_s)
            if isinstance(measured, Fault):
                raise _failed(measured)
            self._overhead, self._overhead_s = measured, time.monotonic()
        return self._overhead

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
