"""Clock of a runner on the host: all processes of the runner are stopped between two calls.

Inputs are written while the runner is stopped, and cannot be seen before `go`. The clock ends when the runner is
stopped again, so work after `done` is either timed or never happens:

    judge:   stopped | write fresh inputs | t0 | resume |                | sample | stop | t1 | snapshot, compare
    runner:                                     | forward | done |

An overhead is subtracted from every call, so work could hide between `done` and the stop. Memory samples taken at
`done` are compared after the stop: an output written in between was not finished.
"""

import time
from collections.abc import Callable

import torch

from evaluator.devices.memory import Region
from evaluator.judge.clock.clock import ClockedCall
from evaluator.judge.clock.output_words import MemorySamples
from evaluator.judge.runners.runner_client import RunnerClient, answers
from evaluator.judge.runners.runner_faults import Stage, unexpected_frame
from evaluator.protocol.frames import Call, Done, Prepare
from evaluator.records import Fault


class HostClock:
    """Times the calls of one runner with the host's clock."""

    empty_ms = 0.0
    windows = None

    def __init__(self, session: RunnerClient, outputs: Region) -> None:
        """Stop and resume the runner of `session`, which writes outputs into `outputs`.

        At the reported end of every call, empty calls included, `memory_samples` are read again. The sampling time is
        therefore part of the overhead subtracted from all calls.
        """
        self._session = session
        self.memory_samples = MemorySamples(outputs)

    def prepare(self, frame: Prepare, *, timeout_s: float) -> Done | Fault:
        """Prepare the runner, then stop all its processes."""
        self._session.let_go()
        answer = self._session.prepare(frame, timeout_s=timeout_s)
        return answer if isinstance(answer, Fault) else self._session.stop() or answer

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
        """Write the inputs, resume the runner, and stop the runner after the answer."""
        write()
        start_ns = time.perf_counter_ns()
        self._session.let_go()
        answer = self._session.ask(frame, Stage.CALL, timeout_s)
        if isinstance(answer, Fault):
            return answer
        self.memory_samples.look_again()
        fault = self._session.stop()
        elapsed_ms = (time.perf_counter_ns() - start_ns) / 1e6
        if fault is not None:
            return fault
        if isinstance(answer, Done) and answers(answer, frame):
            return ClockedCall(answer, elapsed_ms)
        return unexpected_frame(answer)
