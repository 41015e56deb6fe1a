"""The reference's side of a timing: measured before a submission's runner exists, and again when that is dead.

A judge that grades several submissions of one problem keeps runners of the reference between them, with what a call
costs there, where memory allows; inputs are drawn anew for every call. What was measured after one submission counts as
measured before the next, if that comes soon enough: the order in time is reference, submission, reference, submission,
reference, and each submission stands between two. Two runners take turns, so those two sides are of two processes, as
in a grade on its own: what differs between processes is part of the interval (`timing/bootstrap.py`).
"""

import contextlib
import time
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple, Self

from msgspec.structs import replace

from evaluator.devices.gpu import GpuState
from evaluator.errors import JudgeFailed
from evaluator.judge.context.grade_context import GradeContext
from evaluator.judge.trial import timing_loop
from evaluator.judge.trial.model_runner import ModelRunner
from evaluator.judge.trial.trial_runner import TrialRunner
from evaluator.records import DeviceKind, Fault, Samples
from evaluator.sandbox import ConfinedProcess

AS_REFERENCE = "from model import Model as ModelNew\n"
"""The reference, handed in as a submission: it is timed by the same code in the same kind of runner."""

RECENT_S = 10.0
"""How old what was measured after one submission may be when it counts as measured before the next."""

OVERHEAD_GOOD_S = 60.0
"""How long what a call costs is taken to stay as it is: a GPU's clocks, and what else holds a context, change."""

_REST_S = 1.0
"""What disturbs a reference is often over soon, and three tries would be. After each try, so much longer is waited."""

_IN_TURN = 2
_BEFORE, _AFTER = "reference_before", "reference_after"


class Reading(NamedTuple):
    """One side of the reference: its samples, what a call costs there, and how the GPU was at its end."""

    samples: Samples
    overhead: timing_loop.Overhead
    look: GpuState | None


class ReferenceTimer:
    """The reference of one problem, as it is timed. A context manager: leaving it ends the runners that were kept."""

    def __init__(self, context: GradeContext, *, lasting: bool = False) -> None:
        """Measure nothing yet. `lasting`: what can be used again is kept, until the end."""
        self._context = context
        self._lasting = lasting
        self._kept = contextlib.ExitStack()
        self._benches: deque[TrialRunner] = deque()
        self._begun: deque[ModelRunner] = deque()
        self._runners: list[ConfinedProcess] = []
        self._overhead: timing_loop.Overhead | None = None
        self._overhead_s = 0.0
        self._recent: tuple[Reading, float] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the runners that were kept, side by side: of a GPU each takes a tenth of a second to let go."""
        for runner in self._runners:
            runner.condemn()
        self._runners.clear()
        self._kept.close()
        self._benches.clear()
        self._begun.clear()
        self._recent = None

    def begin(self) -> None:
        """Have the runners of both sides made ready beside a submission's check, where there is room for them."""
        wanted = self._lasting or self._context.terms.device is DeviceKind.CUDA
        if not wanted or self._benches or self._begun or not self._context.backend.room_for(_IN_TURN):
            return
        for _ in range(_IN_TURN):
            model_runner = self._kept.enter_context(self._context.runner(AS_REFERENCE))
            self._runners.append(model_runner.session.child)
            self._context.count_as_ours(model_runner.session.child)
            if (fault := model_runner.begin()) is not None:
                raise _failed(fault)
            self._begun.append(model_runner)

    def before(self) -> Reading:
        """Give the side before a submission. No runner may have one in it."""
        if self._recent is not None:
            reading, measured_s = self._recent
            self._recent = None
            if time.monotonic() - measured_s <= RECENT_S:
                self._context.recall(reading.look)
                return reading._replace(samples=replace(reading.samples, side=_BEFORE))
        return self._measured(_BEFORE)

    def after(self) -> Samples:
        """Measure the side after a submission, whose runner is dead."""
        reading = self._measured(_AFTER)
        if self._lasting:
            self._recent = reading, time.monotonic()
        return reading.samples

    def _measured(self, name: str) -> Reading:
        with self._runner() as trial_runner:
            overhead = self._known_overhead(trial_runner)
            samples, look = self._undisturbed(name, trial_runner, overhead), self._context.look()
        return Reading(samples, overhead, look)

    def _undisturbed(self, name: str, trial_runner: TrialRunner, overhead: timing_loop.Overhead) -> Samples:
        """Measure a side, again where something else was at work on the GPU."""
        message, first_call_ms = "", 0.0
        for number in range(timing_loop.TRIES):
            time.sleep(number * _REST_S)
            seeds, timeout_s = self._context.seeds.timed(name), self._context.call_timeout_s
            side = timing_loop.side(
                name, trial_runner, seeds, overhead, timeout_s, at_least=timing_loop.REFERENCE_CALLS
            )
            if side.samples is not None:  # A second try's first call is no first call.
                first_call_ms = max(first_call_ms, side.samples.first_call_ms)
                if side.failed is None:
                    return replace(side.samples, first_call_ms=first_call_ms)
            fault = side.failed.fault if side.failed is not None else None
            message = fault.finding.message if fault is not None else "no samples"
            if fault is None or fault.finding.code not in timing_loop.DISTURBED:
                raise JudgeFailed(
                    f"the reference fails its own check: {message}",
                    hint="the output may depend on more than inputs and weights; see `warpgrade problems show`",
                )
        raise JudgeFailed(
            f"other work disturbed the reference {timing_loop.TRIES} times: {message}",
            hint="end other work on this GPU, or choose another GPU with --gpu",
        )

    def _known_overhead(self, trial_runner: TrialRunner) -> timing_loop.Overhead:
        """Give what a call costs, measured in `trial_runner` unless that was done a short while ago."""
        if self._overhead is None or time.monotonic() - self._overhead_s > OVERHEAD_GOOD_S:
            measured = timing_loop.overhead(trial_runner, self._context.call_timeout_s)
            if isinstance(measured, Fault):
                raise _failed(measured)
            self._overhead, self._overhead_s = measured, time.monotonic()
        return self._overhead

    @contextlib.contextmanager
    def _runner(self) -> Iterator[TrialRunner]:
        """Have a runner of the reference, which never sees a submission: one of two in turn, or one for this side."""
        if self._begun:
            self._benches.appendleft(self._ready(self._begun.popleft()))
            yield self._benches[0]
        elif self._benches:
            self._benches.rotate()
            yield self._benches[0]
        else:
            with self._context.runner(AS_REFERENCE) as model_runner:
                if (fault := model_runner.begin()) is not None:
                    raise _failed(fault)
                yield self._ready(model_runner)

    def _ready(self, model_runner: ModelRunner) -> TrialRunner:
        """Wait for a runner. Where it would have to copy its weights it would be charged for it: then they stay."""
        constructed = model_runner.begun()
        if isinstance(constructed, Fault):
            raise _failed(constructed)
        if model_runner.sites(constructed).copied:
            self._context.reference.weights.leave("the reference's own do not lie in memory that the judge shares")
        return model_runner.trial_runner(model_runner.sites(constructed))


def _failed(fault: Fault) -> JudgeFailed:
    """What goes wrong in the reference's runner is not the submission's."""
    return JudgeFailed(f"the reference's own runner failed: {fault.finding.message}")
