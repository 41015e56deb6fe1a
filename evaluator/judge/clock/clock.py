"""What a clock of the judge's does: it reveals the inputs, lets one call happen, and says how long that took."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch

from evaluator.judge.clock.memory_samples import MemorySamples
from evaluator.protocol.frames import Call, Done, Prepare
from evaluator.records import Fault


class Sample(NamedTuple):
    """Elements of an output as they were when the clock stopped: `bytes` (n, item size) at the flat `positions` (n)."""

    positions: torch.Tensor
    content: torch.Tensor


class ClockedCall(NamedTuple):
    """A call that was answered: what the runner says it gave, and what the judge saw.

    `elapsed_ms` runs from the inputs' reveal to the end of the work. Where there is a GPU, `host_ms` is how long the
    runner's host took to queue it, `prepared_ms` how long the GPU took to write the inputs, and `lag_ms` how long it
    took from the word that the work is done until the judge's own work went on. `samples` are by path.
    """

    done: Done
    elapsed_ms: float
    host_ms: float | None = None
    prepared_ms: float | None = None
    lag_ms: float | None = None
    samples: dict[str, Sample] | None = None


class Clock(Protocol):
    """The clock of one runner. `empty_ms` is what an empty call's own work takes."""

    empty_ms: float

    @property
    def words(self) -> MemorySamples | None:
        """Words of the runner's output region, noted around each call; None where a GPU takes samples instead."""

    def prepare(self, frame: Prepare, *, timeout_s: float) -> Fault | None:
        """Have the runner get ready, off the clock, and leave it so that it cannot see what is written next."""

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
        """Write the inputs by `write`, let the runner go, and stop the clock when it is done.

        With `asks_late` the frame has a secret, the seed of numbers that forward draws: it is sent when the clock runs.
        `outline` holds, by path, the shapes and dtypes of the tensors that are expected; a clock that the runner goes
        on behind takes samples of them. The runner may take `timeout_s`, and from where it says that all of its work is
        queued on a GPU, which compiles and tunes nothing any more, `queued_timeout_s`.
        """
