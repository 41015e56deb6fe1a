"""Memory plan of a grade, computed before any allocation."""

import contextlib
import io

import psutil
import torch

from evaluator.cache.build_cache import measured_once
from evaluator.catalog import sized_source
from evaluator.devices.gpu import Gpu
from evaluator.errors import UsageError
from evaluator.judge.tensors.pytree import Value
from evaluator.problem_code import CudaMeans
from evaluator.protocol.pytree import tensors_of
from evaluator.records import CaseName, Problem, Record


class MemoryPlan(Record, frozen=True):
    """Sizes of one call."""

    input_bytes: int
    output_bytes: int
    state_bytes: int

    def judge_bytes(self, *, backward: bool) -> int:
        """Estimate the peak memory of judge and runner together, in bytes.

        Inputs: the judge's, the shared copy, and a copy in float64 (2 x). Outputs: honest, float64 (2 x), shared,
        snapshot, and the runner's last two. Weights: the judge's, the constructed values, float64 (2 x), shared twice.
        Gradients double the sum.
        """
        once = 4 * self.input_bytes + 7 * self.output_bytes + 6 * self.state_bytes
        return 2 * once if backward else once

    def gpu_bytes(self, *, backward: bool, in_blocks: bool) -> int:
        """Estimate the peak GPU memory of judge and runner together, in bytes. Large temporaries come on top.

        Inputs: the judge's and the shared copy. Outputs: two calls in the arena, and one more for temporaries of
        forward; temporaries larger than outputs are not included. Weights: the judge's, the constructed values, float64
        (2 x), and the runner's, with room for as much again. Blocks of expected values, samples, and two contexts take
        3 GiB. Without blocks, inputs and outputs are also needed in float64. Gradients double the sum.
        """
        once = 2 * self.input_bytes + 3 * self.output_bytes + 6 * self.state_bytes
        if not in_blocks:
            once += 2 * self.input_bytes + 3 * self.output_bytes
        return (2 * once if backward else once) + (3 << 30)


_BLOCKS_BYTES = 704 << 20
# The judge's kernels compare values in place. Besides a block, memory holds the buffer for overwriting L2, of twice the
# size of L2: on an H200, 120 MiB.
_BESIDE_BLOCKS_BYTES = 200 << 20
# The clocks of three runners, and values of dtypes that the kernels do not compare: at most 200 MiB.
_BESIDE_BYTES = 576 << 20
# Fraction lost to fragmentation in the allocator: 1 / 16.
_LOST_PART = 16


def judge_bytes(input_bytes: int, output_bytes: int, *, peak_bytes: int, exact_bytes: int, blocks: int) -> int:
    """Return the GPU memory that the judge needs beside shared memory: inputs and expected values.

    Expected values are plain outputs and the measured peak: `peak_bytes` in a whole call of the plain reference,
    `exact_bytes` in float64 (0 if unused). With `blocks`, the values of one block count, and at least 704 MiB. Without
    blocks, inputs and outputs count at least twice in float64, and the plain outputs of two sides stay until the next
    call.
    """
    if blocks > 1:
        worst_bytes = output_bytes // blocks + max(peak_bytes // blocks, exact_bytes)
        return input_bytes + max(_BLOCKS_BYTES, worst_bytes + _BESIDE_BLOCKS_BYTES)
    least_bytes = 2 * (input_bytes + output_bytes) if exact_bytes else 0
    worst_bytes = output_bytes + max(peak_bytes, exact_bytes, least_bytes)
    return input_bytes + 2 * output_bytes + worst_bytes + worst_bytes // _LOST_PART + _BESIDE_BYTES


_WORTH_PLANNING_BYTES = 64 << 20


class _Planned(Record, frozen=True):
    """A cached plan; None if the sizes are too small for a plan."""

    plan: MemoryPlan | None


def plan(problem: Problem, size: CaseName, *, from_bytes: int = 0) -> MemoryPlan | None:
    """Return the sizes of a call, computed on the meta device without allocating tensors; None on failure.

    Inputs and weights below `from_bytes` also return None, to save time: the first operation on the meta device imports
    800 modules, a second of every grade, as do some functions for drawing inputs. Results are cached.
    """
    source = sized_source(problem, size)
    parts = ["plan", source, from_bytes, torch.__version__]
    try:
        # Output of the author's code appears in the real run.
        with contextlib.redirect_stdout(io.StringIO()):
            return measured_once(
                parts, _Planned, lambda: _Planned(plan=_plan_on_meta(source, problem.path, from_bytes))
            ).plan
    except (Exception, SystemExit):  # noqa: BLE001 - no shapes without values; then there is no plan, and no refusal either
        return None


def _plan_on_meta(source: str, path: str, from_bytes: int) -> MemoryPlan | None:
    space: dict[str, object] = {"__name__": "model"}
    with torch.device("meta"), CudaMeans(torch.device("meta")), torch.no_grad():
        exec(compile(source, path, "exec"), space)  # noqa: S102 - the author's code
        inputs, init = _call(space, "get_inputs"), _call(space, "get_init_inputs")
        model = space["Model"](*init[0], **init[1])  # type: ignore[operator]
        input_bytes, state_bytes = _bytes(inputs), _bytes(model.state_dict())
        if input_bytes + state_bytes < from_bytes:
            return None
        output_bytes = _bytes(model(*inputs[0], **inputs[1]))
    return MemoryPlan(input_bytes=input_bytes, output_bytes=output_bytes, state_bytes=state_bytes)


def refuse_what_does_not_fit(problem: Problem, size: CaseName, gpu: Gpu | None) -> None:
    """Raise UsageError with the sizes if the machine, or its GPU, has too little memory."""
    sizes = plan(problem, size, from_bytes=_WORTH_PLANNING_BYTES)
    if sizes is None:
        return
    if gpu is None:
        needed, free = sizes.judge_bytes(backward=problem.backward), psutil.virtual_memory().available
        machine = "this machine"
    else:
        needed, free = sizes.gpu_bytes(backward=problem.backward, in_blocks=bool(problem.split)), gpu.memory_bytes
        machine = f"GPU {gpu.number} ({gpu.name})"
    if needed > free:
        raise UsageError(
            f"{problem.name} at size {size} needs about {_gib(needed)} ({_gib(sizes.input_bytes)} of inputs, "
            f"{_gib(sizes.output_bytes)} of outputs); {machine} has {_gib(free)}",
            hint="grade at a smaller size (--size small)",
        )


def _call(space: dict[str, object], function: str) -> tuple[list[Value], dict[str, Value]]:
    value = space[function]()  # type: ignore[operator]
    return ([], value) if isinstance(value, dict) else (list(value), {})


def _bytes(value: Value) -> int:
    return sum(leaf.numel() * leaf.element_size() for leaf in tensors_of(value))


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"
