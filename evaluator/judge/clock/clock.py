"""Clock interface: reveal the inputs, run one call, and measure the duration."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch

from evaluator.judge.clock.output_words import MemorySamples
from evaluator.protocol.frames import Call, Done, Masked, Prepare
from evaluator.records import Fault


class OutputSample(NamedTuple):
    """Output elements as of the clock's stop: `content` (n, item size in bytes) at the flat `positions` (n)."""

    positions: torch.Tensor
    content: torch.Tensor


class ClockedCall(NamedTuple):
    """An answered call: the runner's answer, and the judge's measurements.

    `elapsed_ms` runs from the reveal of the inputs to the end of the work. On a GPU, `host_ms` is the time of the
    runner's host to queue the work, None if it was not queued when the inputs were revealed, and `prepared_ms` the GPU
    time to write the inputs. `lag_ms` is the delay from the word `done` to the judge's next work. `samples` are by
    path.
    """

    done: Done
    elapsed_ms: float
    host_ms: float | None = None
    prepared_ms: float | None = None
    lag_ms: float | None = None
    samples: dict[str, OutputSample] | None = None


class ClockedWindow(NamedTuple):
    """An answered window: the calls, and the time from the reveal of all inputs to the end of all work.

    `was_queued`: the runner had queued all calls when the inputs were revealed. Otherwise the time includes the host's.
    `host_ms` is the time of the runner's host to queue all calls.
    """

    calls: list[ClockedCall]
    elapsed_ms: float
    was_queued: bool
    host_ms: float = 0.0


class ClockedSpotCheck(NamedTuple):
    """An answered spot check: the calls, and the time of each from its release to its digest, in ms.

    `mismatch` is the first call whose outputs changed after the digest; None without any.
    """

    calls: list[ClockedCall]
    times_ms: list[float]
    mismatch: int | None


class Clock(Protocol):
    """The clock of one runner. `empty_ms` is the duration of an empty call's own work."""

    empty_ms: float

    @property
    def windows(self) -> "WindowClock | None":
        """The clock of windows and spot checks; None for a clock of single calls."""

    @property
    def memory_samples(self) -> MemorySamples | None:
        """Samples of the runner's output region around each call; None on a GPU, with output sampling instead."""

    def prepare(self, frame: Prepare, *, timeout_s: float) -> Done | Fault:
        """Prepare the runner outside the timed interval, and return its answer.

        The runner cannot observe the inputs written next.
        """

    def call(
        self,
        frame: Call,
        write: Callable[[], None],
        outline: dict[str, torch.Tensor],
        *,
        timeout_s: float,
        queued_timeout_s: float,
        asks_late: bool,
    ) -> ClockedCall | Fault:
        """Write the inputs with `write`, resume the runner, and stop the clock at the end of the call.

        With `asks_late` the frame holds a secret, the seed of random numbers in forward, and is sent after the clock's
        start. `outline` maps paths to the expected shapes and dtypes; a clock without control over the runner's later
        work samples the outputs. `timeout_s` limits the time until all work is queued on the GPU, `queued_timeout_s`
        the rest, which contains no compilation or tuning.
        """


class WindowClock(Protocol):
    """The clock of one runner's windows, each of at most `window_calls` calls."""

    window_calls: int

    def window(
        self,
        frames: list[Call],
        write: Callable[[], None],
        outline: dict[str, torch.Tensor],
        *,
        timeout_s: float,
    ) -> ClockedWindow | Fault:
        """Write the inputs of all calls, then let the runner make the calls one behind the other."""

    def spot_check(
        self, frames: list[Call], write: Callable[[], None], masked: list[Masked], *, timeout_s: float
    ) -> ClockedSpotCheck | Fault:
        """Write and mask the inputs of all calls, then release each call when the digest of the previous is there."""
