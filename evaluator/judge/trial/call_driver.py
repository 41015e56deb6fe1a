"""Calls of one runner: prepare the runner, then let the clock reveal the inputs of one call."""

import secrets
from collections.abc import Sequence
from typing import Literal

import torch
from msgspec.structs import replace

from evaluator.devices.memory import MAX_PLACES, SharedMemory
from evaluator.judge.answer.output_checks import outlined
from evaluator.judge.answer.precomputed_output import PrecomputedOutputCheck, drawn_byte
from evaluator.judge.clock.clock import Clock, ClockedCall, ClockedSpotCheck, ClockedWindow, WindowClock
from evaluator.judge.reference.call_plan import CallPlan
from evaluator.judge.reference.changing_weights import Laid, Sites
from evaluator.judge.reference.reference import Reference
from evaluator.judge.tensors.pytree import LaidOut, Value, lay_out, named_views
from evaluator.protocol import model_call
from evaluator.protocol.frames import Call, DictItems, Done, EmulatorSchedule, Items, Masked, Prepare
from evaluator.protocol.pytree import answer_spans
from evaluator.records import Fault, Fill, Order, Schedule

_ORDERS: dict[Order, Literal[0, 1, 2]] = {Order.ASCENDING: 0, Order.DESCENDING: 1, Order.SHUFFLED: 2}
_FILLS: dict[Fill, Literal[0, 1, 2, 3]] = {Fill.NAN: 0, Fill.LARGE: 1, Fill.NEGATIVE: 2, Fill.ORDINARY: 3}
_WORD_BYTES = 4


class CallDriver:
    """Sends calls to one runner, each with fresh inputs and weights."""

    def __init__(
        self,
        reference: Reference,
        clock: Clock,
        memory: SharedMemory,
        sites: Sites,
        precomputed_output: PrecomputedOutputCheck | None,
        first_call_s: float,
    ) -> None:
        """Call the runner behind `clock`. `precomputed_output` samples the runner's memory after each preparation.

        `first_call_s` raises the time limit of the first call until all work is queued. Weights change between calls if
        `sites` locates the weights in the runner.
        """
        self._reference = reference
        self._clock = clock
        self._inputs = memory.inputs
        self._poison_bytes = memory.poison_bytes
        self._sites = sites
        self._precomputed_output = precomputed_output
        self._first_call_s = first_call_s
        self.wanted: model_call.Result | None = None
        """Expected result of the last non-empty call."""

    def ask(
        self,
        index: int,
        plan: CallPlan,
        wanted: model_call.Result | None,
        *,
        schedule: Schedule | None,
        timeout_s: float,
        forked: bool = False,
    ) -> tuple[LaidOut, ClockedCall | Fault]:
        """Prepare the runner, then let the clock reveal the inputs. Without `wanted`, the call is empty."""
        if (fault := self._prepared(index, 1, timeout_s)) is not None:
            return LaidOut([], []), fault
        placed, frames = self._laid_out([plan], self._shared_weights())
        frame = replace(
            frames[0],
            index=index,
            empty=wanted is None,
            forked=forked,
            schedule=None if schedule is None else _schedule_frame(schedule),
        )
        self.wanted = wanted if wanted is not None else self.wanted
        longest_s, self._first_call_s = max(timeout_s, self._first_call_s), 0.0
        outline = outlined(self.wanted)
        return placed, self._clock.call(
            frame,
            placed.write,
            outline,
            timeout_s=longest_s,
            queued_timeout_s=timeout_s,
            asks_late=self._reference.draws_numbers,
        )

    @property
    def window_calls(self) -> int:
        """Largest number of calls in a window; 1 without windows.

        A forward that draws random numbers receives its request after the clock's start, and has no windows.
        """
        windows = self._clock.windows
        if windows is None or self._reference.draws_numbers or self.wanted is None:
            return 1
        outputs = max(len(outlined(self.wanted)), 1)
        return max(min(windows.window_calls, MAX_PLACES // outputs), 1)

    def ask_window(
        self, index: int, plans: Sequence[CallPlan], *, timeout_s: float, empty: bool = False
    ) -> tuple[LaidOut, ClockedWindow | Fault]:
        """Make a window of calls, after a call outside of a window. `empty` calls have no work on the GPU."""
        if (fault := self._prepared(index, self.window_calls, timeout_s)) is not None:
            return LaidOut([], []), fault
        placed, frames = self._laid_out(plans, self._shared_weights())
        frames = [replace(frame, index=index, empty=empty, probes=not empty) for frame in frames]
        return placed, self._windows.window(frames, placed.write, outlined(self.wanted), timeout_s=timeout_s)

    def staged_weights(self) -> dict[str, torch.Tensor]:
        """Return a copy of the reference's current weights for `ask_spot_check`; empty if weights do not change."""
        return self._sites.staged(self._reference.parameters()) if self._sites.change else {}

    def ask_spot_check(
        self,
        index: int,
        plans: Sequence[CallPlan],
        weights: Sequence[dict[str, torch.Tensor]],
        *,
        timeout_s: float,
        empty: bool = False,
    ) -> tuple[LaidOut, ClockedSpotCheck | Fault]:
        """Make calls that are released one at a time, each with its own `weights`.

        `empty` calls consist of removed masks, copied weights and digests.
        """
        if (fault := self._prepared(index, self.window_calls, timeout_s)) is not None:
            return LaidOut([], []), fault
        placed, frames = self._laid_out(plans, [Laid([], call_weights) for call_weights in weights])
        frames = [replace(frame, index=index, empty=empty, probes=False) for frame in frames]
        masked = [_extent(frame, self._inputs.size_bytes) for frame in frames]
        return placed, self._windows.spot_check(frames, placed.write, masked, timeout_s=timeout_s)

    @property
    def _windows(self) -> WindowClock:
        if self._clock.windows is None:
            raise TypeError("this clock has no windows")
        return self._clock.windows

    def _prepared(self, index: int, calls: int, timeout_s: float) -> Fault | None:
        """Let the runner free old outputs, and fill the memory of the outputs of `calls` calls.

        All windows of a runner fill the same number: PyTorch's allocator keeps segments, and reuses none that is too
        small. Windows of different lengths would exhaust the arena.
        """
        poison = drawn_byte() if self._precomputed_output is None else self._precomputed_output.drawn_poison()
        answer = self._clock.prepare(
            Prepare(index=index, token=_token(), poison=poison, ahead_bytes=calls * self._poison_bytes),
            timeout_s=timeout_s,
        )
        if isinstance(answer, Fault):
            return answer
        self._sites.note_moved(answer.moved)
        if self._precomputed_output is not None:
            self._precomputed_output.look(poison)
        return None

    def _shared_weights(self) -> list[Laid]:
        """Return the reference's current weights, which all calls of a frame share."""
        return [self._sites.of(self._reference.parameters())] if self._sites.change else []

    def _laid_out(self, plans: Sequence[CallPlan], weights: Sequence[Laid]) -> tuple[LaidOut, list[Call]]:
        """Choose places for the inputs of calls. Inputs and staged weights of a call lie side by side.

        `weights` are those of each call, or of the first.
        """
        values: list[tuple[str, Value]] = []
        starts = []
        for plan, laid in zip(plans, [*weights, *[Laid([], {})] * (len(plans) - len(weights))], strict=True):
            starts.append(len(values))
            values += [(f"input {position}", value) for position, value in enumerate(plan.inputs.args)]
            values += [(f"input {name}", value) for name, value in plan.inputs.kwargs.items()]
            values += [("gradient", plan.gradients or []), ("weight", laid.staged)]
        direct = [pair for laid in weights for pair in laid.direct]
        placed = lay_out(values, self._inputs)._replace(weights=direct)
        frames = []
        for plan, start, end in zip(plans, starts, [*starts[1:], len(values)], strict=True):
            *arguments, gradients, staged = placed.nodes[start:end]
            count = len(plan.inputs.args)
            frames.append(
                Call(
                    index=0,
                    token=_token(),
                    random_seed=plan.random_seed,
                    empty=False,
                    forked=False,
                    ticket=0,
                    schedule=None,
                    args=Items(is_tuple=False, items=arguments[:count]),
                    kwargs=DictItems(keys=list(plan.inputs.kwargs), items=arguments[count:]),
                    output_gradients=gradients if plan.gradients is not None and isinstance(gradients, Items) else None,
                    weights=named_views(staged),
                )
            )
        return placed, frames


def _extent(frame: Call, region_bytes: int) -> Masked:
    """Return the memory of a call's inputs and weights, in words of 4 bytes: other calls are 256 bytes away."""
    gradients = [] if frame.output_gradients is None else [frame.output_gradients]
    nodes = [frame.args, frame.kwargs, *gradients, *frame.weights.values()]
    spans = answer_spans(Done(index=0, outputs=Items(is_tuple=False, items=list(nodes))))
    if not spans:
        return Masked(offset_bytes=0, size_bytes=0)
    start = min(offset for offset, _ in spans) // _WORD_BYTES * _WORD_BYTES
    end = max(offset + size for offset, size in spans)
    return Masked(offset_bytes=start, size_bytes=min(-(-end // _WORD_BYTES) * _WORD_BYTES, region_bytes) - start)


def _schedule_frame(schedule: Schedule) -> EmulatorSchedule:
    return EmulatorSchedule(
        order=_ORDERS[schedule.order],
        seed=int(schedule.seed, 16),
        workers=schedule.workers,
        fill=_FILLS[schedule.fill],
    )


def _token() -> int:
    return secrets.randbits(62)
