"""What it takes to look at a runner's output region before and after each call, beside poisoning what was written.

    python -m benchmarks.speed.precomputed_output

Both are off the clock of a call; poisoning is the runner's, the looks are the judge's.
"""

import functools
import time
from collections.abc import Callable

import torch

from evaluator.devices.memory import HostRegion
from evaluator.judge.answer.precomputed_output import PrecomputedOutputCheck
from evaluator.judge.clock.output_words import MemorySamples
from evaluator.judge.tensors.pytree import AnswerPair
from evaluator.protocol.frames import TensorView
from evaluator.timing.stats import median

_REGIONS_MIB = (32, 512, 4096)
_WRITTEN_PART = 8
_OUTPUT_PART = 34
"""An output's part of the region where inputs are as large as outputs."""
_TURNS = 30


def main() -> None:
    """Print a table: medians of turns in which each follows the other."""
    print("region_mib  written_mib  poison_ms  look_before_ms  look_after_ms")
    for region_mib in _REGIONS_MIB:
        with HostRegion(region_mib << 20) as region:
            written = region.flat[: region.size_bytes // _WRITTEN_PART]
            elements = region.size_bytes // _OUTPUT_PART // 4
            view = TensorView(dtype="float32", shape=(elements,), strides=(1,), offset_bytes=0)
            pairs = [AnswerPair("output", torch.empty(elements, device="meta"), view)]
            memory_samples = MemorySamples(region)
            check = PrecomputedOutputCheck(memory_samples)
            steps: list[Callable[[], object]] = [
                functools.partial(written.fill_, 1),
                functools.partial(check.look, 1),
                functools.partial(check.stood_before, pairs, frozenset()),
            ]
            turns = [[_time_ms(step) for step in steps] for _ in range(_TURNS)]
            poison_ms, before_ms, after_ms = (median(list(times)) for times in zip(*turns, strict=True))
            print(
                f"{region_mib:10}  {len(written) >> 20:11}  {poison_ms:9.2f}  {before_ms:14.2f}  {after_ms:13.2f}",
                flush=True,
            )


def _time_ms(step: Callable[[], object]) -> float:
    started = time.perf_counter_ns()
    step()
    return (time.perf_counter_ns() - started) / 1e6


if __name__ == "__main__":
    main()
