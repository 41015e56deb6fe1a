"""The clock of a runner on the host: every process of the runner is stopped between two calls.

Inputs are written while it is stopped, so they cannot be seen before `go`; the clock ends when it is stopped again, so
work after `done` is either charged or never happens:

    judge:   stopped | write fresh inputs | t0 | let go |                | look | stop | t1 | snapshot, compare
    runner:                                     | forward | done |

Some of what is charged is taken off every call, so work might hide behind `done` until the runner is stopped. What is
looked at on `done` is compared when it is: an output that is written in between was not finished.
"""

import time
from collections.abc import Callable

import torch

from evaluator.devices.memory import Region
from evaluator.judge.clock.clock import ClockedCall
from evaluator.judge.clock.memory_samples import MemorySamples
from evaluator.judge.runners.runner_client import RunnerClient, Stage, answers
from evaluator.protocol.frames import Call, Done, Prepare
from evaluator.records import Fault


class HostClock:
    """Times the calls of one runner by the host's clock."""

    empty_ms = 0.0

    def __init__(self, session: RunnerClient, outputs: Region) -> None:
        """Stop and let go of `session`'s runner, which answers into `outputs`.

        Its `words` are looked at again when a call says it is over: empty calls too, so what that takes is taken off
        all alike.
        """
        self._session = session
        self.words = MemorySamples(outputs)

    def prepare(self, frame: Prepare, *, timeout_s: float) -> Fault | None:
        """Have the runner get ready, then stop it."""
        self._session.let_go()
        return self._session.prepare(frame, timeout_s=timeout_s) or self._session.stop()

    def call(
        self,
        frame: Call,
        write: Callable[[], None],
        outline: dict[str, torch.Tensor],  # noqa: ARG002 - a stopped runner changes nothing behind the clock
        *,
        timeout_s: float,
        queued_timeout_s: float,  # noqa: ARG002 - nothing is queued here
        asks_late: bool,  # noqa: ARG002 - no frame is ever sent before the clock runs
    ) -> ClockedCall | Fault:
        """Write the inputs, let the runner go, and stop it when it has answered."""
        write()
        start_ns = time.perf_counter_ns()
        self._session.let_go()
        answer = self._session.ask(frame, Stage.CALL, timeout_s)
        if isinstance(answer, Fault):
            return answer
        self.words.look_again()
        fault = self._session.stop()
        elapsed_ms = (time.perf_counter_ns() - start_ns) / 1e6
        if fault is not None:
            return fault
        if isinstance(answer, Done) and answers(answer, frame):
            return ClockedCall(answer, elapsed_ms)
        return self._session.out_of_place(answer)
