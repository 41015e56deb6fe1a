"""Calls of one runner: prepare the runner, then let the clock reveal the inputs of one call."""

import secrets
from typing import Literal

from evaluator.devices.memory import SharedMemory
from evaluator.judge.clock.clock import Clock, ClockedCall
from evaluator.judge.inputs.changing_weights import Laid, Sites
from evaluator.judge.integrity.output_checks import outlined
from evaluator.judge.integrity.precomputed_output import PrecomputedOutputCheck
from evaluator.judge.reference.call_plan import CallPlan
from evaluator.judge.reference.reference import Reference
from evaluator.judge.tensors.pytree import LaidOut, lay_out, named_views
from evaluator.protocol import model_call
from evaluator.protocol.frames import Call, EmulatorSchedule, Items, Prepare, Table
from evaluator.records import Fault, Fill, Order, Schedule

_ORDERS: dict[Order, Literal[0, 1, 2]] = {Order.ASCENDING: 0, Order.DESCENDING: 1, Order.SHUFFLED: 2}
_FILLS: dict[Fill, Literal[0, 1, 2, 3]] = {Fill.NAN: 0, Fill.LARGE: 1, Fill.NEGATIVE: 2, Fill.ORDINARY: 3}


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
        poison = secrets.randbelow(256)
        fault = self._clock.prepare(
            Prepare(
                index=index,
                token=_token(),
                poison=poison,
                ahead_bytes=self._poison_bytes,
            ),
            timeout_s=timeout_s,
        )
        if fault is not None:
            return LaidOut([], []), fault
        if self._precomputed_output is not None:
            self._precomputed_output.look(poison)
        inputs, gradients = plan.inputs, plan.gradients
        weights = self._sites.of(self._reference.parameters()) if self._sites.change else Laid([], {})
        placed = lay_out(
            [
                *((f"input {position}", value) for position, value in enumerate(inputs.args)),
                *((f"input {name}", value) for name, value in inputs.kwargs.items()),
                ("gradient", gradients or []),
                ("weight", weights.staged),
            ],
            self._inputs,
        )._replace(weights=weights.direct)
        *nodes, output_gradients, staged = placed.nodes
        count = len(nodes) - len(inputs.kwargs)
        frame = Call(
            index=index,
            token=_token(),
            random_seed=plan.random_seed,
            empty=wanted is None,
            forked=forked,
            ticket=0,
            schedule=None if schedule is None else _schedule_frame(schedule),
            args=Items(is_tuple=False, items=nodes[:count]),
            kwargs=Table(keys=list(inputs.kwargs), items=nodes[count:]),
            output_gradients=None if gradients is None or not isinstance(output_gradients, Items) else output_gradients,
            weights=named_views(staged),
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


def _schedule_frame(schedule: Schedule) -> EmulatorSchedule:
    return EmulatorSchedule(
        order=_ORDERS[schedule.order],
        seed=int(schedule.seed, 16),
        workers=schedule.workers,
        fill=_FILLS[schedule.fill],
    )


def _token() -> int:
    return secrets.randbits(62)
