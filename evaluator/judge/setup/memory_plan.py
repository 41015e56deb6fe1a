"""How much memory a grade takes, worked out before any of it is taken."""

import contextlib
import io

import psutil
import torch

from evaluator.cache.measurements import measured_once
from evaluator.catalog import sized_source
from evaluator.devices.gpu import Gpu
from evaluator.errors import UsageError
from evaluator.judge.tensors.pytree import Value, tensors
from evaluator.records import Problem, Record, SizeName


class Plan(Record, frozen=True):
    """The sizes of one call."""

    input_bytes: int
    output_bytes: int
    state_bytes: int

    def judge_bytes(self, *, backward: bool) -> int:
        """Estimate what judge and runner hold together at the worst moment, in bytes.

        Inputs: the judge's, the shared ones, and a copy in float64 (2 x). Outputs: honest, float64 (2 x), shared,
        snapshot, and the runner's last two. Weights: the judge's, as constructed too, in float64 (2 x), shared twice.
        Gradients double the whole.
        """
        once = 4 * self.input_bytes + 7 * self.output_bytes + 6 * self.state_bytes
        return 2 * once if backward else once

    def gpu_bytes(self, *, backward: bool, in_blocks: bool) -> int:
        """Estimate what judge and runner hold together on a GPU, in bytes; temporaries larger than outputs come on top.

        Inputs: the judge's and the shared ones. Outputs: those of two calls in the arena, and one more for what forward
        allocates on its way. Weights: the judge's, as constructed too, in float64 (2 x), and the runner's, with room
        for as much again. Blocks of the expected values, samples, and two contexts take 3 GiB; what is not computed in
        blocks has inputs and outputs in float64. Gradients double the whole.
        """
        once = 2 * self.input_bytes + 3 * self.output_bytes + 6 * self.state_bytes
        if not in_blocks:
            once += 2 * self.input_bytes + 3 * self.output_bytes
        return (2 * once if backward else once) + (3 << 30)


_BLOCKS_BYTES = 704 << 20
# The judge's kernels compare where values lie. Beside a block there is what a clock overwrites L2 with, which is twice
# its size: 120 MiB on an H200.
_BESIDE_BLOCKS_BYTES = 200 << 20
# Three runners' clocks, and values of kinds that the kernels do not compare: 200 MiB at most.
_BESIDE_BYTES = 576 << 20
# An allocator loses a little of what it keeps to pieces that fit nothing.
_LOST_PART = 16


def judge_bytes(input_bytes: int, output_bytes: int, *, peak_bytes: int, exact_bytes: int, blocks: int) -> int:
    """Say how much of a GPU the judge needs beside what it shares: its inputs, and the expected values.

    Those are plain outputs and, at the worst moment, what was measured: `peak_bytes` in a whole call of the plain
    reference, `exact_bytes` in float64 (0 where it is not used). In `blocks` those of one count, and 704 MiB at least.
    Whole, the inputs and the outputs count twice at least in float64, and the plain outputs of two sides stay until
    the next call.
    """
    if blocks > 1:
        worst_bytes = output_bytes // blocks + max(peak_bytes // blocks, exact_bytes)
        return input_bytes + max(_BLOCKS_BYTES, worst_bytes + _BESIDE_BLOCKS_BYTES)
    least_bytes = 2 * (input_bytes + output_bytes) if exact_bytes else 0
    worst_bytes = output_bytes + max(peak_bytes, exact_bytes, least_bytes)
    return input_bytes + 2 * output_bytes + worst_bytes + worst_bytes // _LOST_PART + _BESIDE_BYTES


_WORTH_PLANNING_BYTES = 64 << 20


class _Planned(Record, frozen=True):
    """A plan, or that it was not worth one."""

    plan: Plan | None


def plan(problem: Problem, size: SizeName, *, from_bytes: int = 0) -> Plan | None:
    """Work the sizes out on the meta device, where tensors have shapes and no memory; None where that fails.

    Inputs and weights below `from_bytes` are not worth it either: the first operation on that device imports 800
    modules, a second of every grade, and so do some of the functions that inputs are drawn with. What was found is
    kept in the cache.
    """
    source = sized_source(problem, size)
    parts = ["plan", source, from_bytes, torch.__version__]
    try:
        # What the author's code prints is shown when it runs in earnest.
        with contextlib.redirect_stdout(io.StringIO()):
            return measured_once(
                parts, _Planned, lambda: _Planned(plan=_worked_out(source, problem.path, from_bytes))
            ).plan
    except (Exception, SystemExit):  # noqa: BLE001 - no shapes without values; then there is no plan, and no refusal either
        return None


def _worked_out(source: str, path: str, from_bytes: int) -> Plan | None:
    space: dict[str, object] = {"__name__": "model"}
    with torch.device("meta"), torch.no_grad():
        exec(compile(source, path, "exec"), space)  # noqa: S102 - the author's code
        inputs, init = _call(space, "get_inputs"), _call(space, "get_init_inputs")
        model = space["Model"](*init[0], **init[1])  # type: ignore[operator]
        input_bytes, state_bytes = _bytes(inputs), _bytes(model.state_dict())
        if input_bytes + state_bytes < from_bytes:
            return None
        output_bytes = _bytes(model(*inputs[0], **inputs[1]))
    return Plan(input_bytes=input_bytes, output_bytes=output_bytes, state_bytes=state_bytes)


def refuse_what_does_not_fit(problem: Problem, size: SizeName, gpu: Gpu | None) -> None:
    """Raise UsageError where this machine, or its GPU, has too little memory, with the sizes."""
    sizes = plan(problem, size, from_bytes=_WORTH_PLANNING_BYTES)
    if sizes is None:
        return
    if gpu is None:
        needed, free = sizes.judge_bytes(backward=problem.backward), psutil.virtual_memory().available
        place = "this machine"
    else:
        needed, free = sizes.gpu_bytes(backward=problem.backward, in_blocks=bool(problem.split)), gpu.memory_bytes
        place = f"GPU {gpu.number} ({gpu.name})"
    if needed > free:
        raise UsageError(
            f"{problem.name} at size {size.value} needs about {_gib(needed)} ({_gib(sizes.input_bytes)} of inputs, "
            f"{_gib(sizes.output_bytes)} of outputs); {place} has {_gib(free)}",
            hint="grade at a smaller size (--size small)",
        )


def _call(space: dict[str, object], function: str) -> tuple[list[Value], dict[str, Value]]:
    value = space[function]()  # type: ignore[operator]
    return ([], value) if isinstance(value, dict) else (list(value), {})


def _bytes(value: Value) -> int:
    return sum(leaf.numel() * leaf.element_size() for leaf in tensors(value))


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"
