"""Setup of a problem before the first call: the reference on its device, memory sizes, distributions."""

import contextlib
import time
from collections.abc import Iterator
from typing import NamedTuple

import torch

from evaluator.compile.device_builders import DeviceBuilders
from evaluator.devices.out_of_memory import out_of_memory
from evaluator.errors import ProblemError
from evaluator.judge.clock.device_backend import (
    CallSizes,
    DeviceBackend,
    GpuBackend,
    HostBackend,
    comparison_on_gpu,
)
from evaluator.judge.compare.tensor_comparison import begin
from evaluator.judge.reference.author_check import require_own_answer
from evaluator.judge.reference.dependence import settle_weights
from evaluator.judge.reference.reference import Reference
from evaluator.judge.setup.distribution_mix import DistributionMix, distribution_mix_for
from evaluator.judge.setup.grade_terms import GradeTerms
from evaluator.judge.setup.memory_plan import judge_bytes
from evaluator.judge.setup.seed_book import fresh_seed
from evaluator.judge.tensors.pytree import Value, extent_bytes
from evaluator.protocol.pytree import leaves, tensors_of
from evaluator.records import Layout, Problem, Profile, ToleranceRule


class ProblemSetup(NamedTuple):
    """A problem on its device: distributions, device backend, and duration of the first call.

    `judge_bytes` is the GPU memory to reserve for the judge, weights included (`keep_memory`).
    """

    reference: Reference
    distribution_mix: DistributionMix
    backend: DeviceBackend
    reference_s: float
    judge_bytes: int = 0


def set_up_problem(
    terms: GradeTerms,
    weight_seed: int,
    device_builders: DeviceBuilders,
    distribution_mix: DistributionMix | None = None,
) -> ProblemSetup:
    """Run the problem's own code, and plan the memory. Raises ProblemError for a broken problem.

    `distribution_mix` is that of another size of the grade.
    """
    reference = Reference(terms.problem, terms.size, weight_seed, "cpu" if terms.gpu is None else "cuda")
    compare = comparison_on_gpu(device_builders) if terms.gpu is not None else begin
    options = terms.options
    mix = distribution_mix_for(reference, terms.size, options.tolerance, options.values, compare, terms.weights)
    if distribution_mix is not None:
        mix = distribution_mix._replace(trials=mix.trials)
    by_benchmark = options.tolerance is ToleranceRule.BENCHMARK
    sizes, reference_s = try_one_call(reference, on_gpu=terms.gpu is not None, by_benchmark=by_benchmark)
    mix.distance(Profile.AS_GIVEN, "")  # Measured here, before a submission could take the memory.
    if terms.gpu is None:
        host = HostBackend(sizes, device_builders)
        return ProblemSetup(reference, mix, host, reference_s)
    # Release the cache: another grade may need the GPU until the lease is final (`GradeContext.take_device`).
    torch.cuda.empty_cache()
    free_bytes, _ = torch.cuda.mem_get_info()
    sizes = planned(reference, sizes, free_bytes)
    backend = GpuBackend(sizes, device_builders, terms.l2)
    windows_bytes = (backend.window_calls - 1) * sizes.input_bytes
    own_bytes = torch.cuda.memory_allocated() + sizes.judge_bytes + windows_bytes
    return ProblemSetup(reference, mix, backend, reference_s, own_bytes)


def planned(reference: Reference, sizes: CallSizes, free_bytes: int) -> CallSizes:
    """Return the memory sizes, without float64 if float64 leaves no room for a runner on the GPU.

    Decided here, before any submission could influence the free memory.
    """
    if sizes.judge_bytes + sizes.runner_bytes + sizes.temporary_bytes <= free_bytes:
        return sizes
    reference.leave_float64()
    return sizes._replace(judge_bytes=sizes.plain_judge_bytes)


def keep_memory(size_bytes: int) -> None:
    """Reserve `size_bytes` of GPU memory in PyTorch's allocator, before a submission could allocate the memory.

    No effect if enough is reserved already. Raises MemoryError.
    """
    missing_bytes = size_bytes - torch.cuda.memory_reserved() if size_bytes else 0
    if missing_bytes > 0:
        with out_of_memory():
            torch.empty(missing_bytes, dtype=torch.uint8, device="cuda")  # Freed at once, but kept by the allocator.


def try_one_call(reference: Reference, *, on_gpu: bool, by_benchmark: bool = False) -> tuple[CallSizes, float]:
    """Return the sizes and the duration (s) of a call, from one run of the reference on discarded inputs.

    Also settle whether float64 works (`Reference.settle_float64`). The problem's own check must accept the reference's
    answer, and in a grade `by_benchmark` the benchmark's check too. Raises ProblemError for a broken problem.
    """
    problem = reference.problem
    inputs = reference.draw(fresh_seed())
    started = time.monotonic()
    with _peak_of_gpu(on_gpu=on_gpu) as peak:
        outputs = reference.forward(inputs, 0)
    reference_s = time.monotonic() - started
    output_tensors = tensors_of(outputs)
    if not output_tensors:
        raise ProblemError(f"{problem.name}: the reference's forward returns no tensor")
    for path, leaf in leaves(outputs, "output"):
        if isinstance(leaf, torch.Tensor) and leaf.numel() == 0:
            shape = list(leaf.shape)
            raise ProblemError(f"{problem.name}: the reference's {path} has shape {shape}, with no element to compare")
    for check in filter(None, (reference.author_check, reference.benchmark_check if by_benchmark else None)):
        require_own_answer(check, problem.name, inputs, outputs)
    input_tensors = [*tensors_of(inputs.args), *tensors_of(inputs.kwargs)]
    state = [*tensors_of(reference.state()), *tensors_of(list(reference.init))]
    backward = problem.backward
    room = 2 if Layout.GAPS in problem.layouts else 1
    input_bytes = _bytes([*input_tensors * room, *state, *(output_tensors if backward else [])])
    output_bytes = _bytes(output_tensors) + (_bytes([*input_tensors, *state]) if backward else 0)
    gradients = reference.output_gradients(outputs, 0) if backward else None
    if backward and on_gpu:
        with _peak_of_gpu(on_gpu=on_gpu) as peak:
            reference.honest(inputs, 0, gradients)
    copies_bytes = sum(leaf.numel() * leaf.element_size() for leaf in input_tensors)  # The call ran on gapless copies.
    peak_bytes = max(peak.size_bytes - copies_bytes, 0)
    refuse_state(problem, outputs, reference.settle(inputs, outputs))
    settle_weights(reference, inputs)
    with _peak_of_gpu(on_gpu=on_gpu) as exact:
        reference.settle_float64(inputs, gradients)
    exact_bytes = 0 if reference.exact_model is None else exact.size_bytes
    blocks = 1 if backward else len(reference.blocks(inputs))
    both, plain = (
        judge_bytes(input_bytes, output_bytes, peak_bytes=peak_bytes, exact_bytes=more_bytes, blocks=blocks)
        for more_bytes in (exact_bytes, 0)
    )
    sizes = CallSizes(input_bytes, output_bytes, peak_bytes, both, plain, _bytes(tensors_of(reference.state())))
    return sizes, reference_s


class _Peak:
    """Peak of PyTorch's GPU memory above the initial level, in bytes; 0 without a GPU."""

    size_bytes = 0


@contextlib.contextmanager
def _peak_of_gpu(*, on_gpu: bool) -> Iterator[_Peak]:
    """Measure the peak memory of a block, up to the end of its GPU work."""
    peak = _Peak()
    if not on_gpu:
        yield peak
        return
    torch.cuda.reset_peak_memory_stats()
    before_bytes = torch.cuda.memory_allocated()
    yield peak
    torch.cuda.synchronize()
    peak.size_bytes = torch.cuda.max_memory_allocated() - before_bytes


def _bytes(tensors: list[torch.Tensor]) -> int:
    """Return the memory for tensors: in place with gaps, or as contiguous copies, whichever is larger."""
    return sum(max(extent_bytes(leaf), leaf.numel() * leaf.element_size()) + 512 for leaf in tensors)


_MOST = 0.01
"""Largest difference, relative to the output's size: far above any rounding, random orders of summation included. Of
integers and booleans, the largest part that differs."""
_LEAST = 1e-4
"""Absolute differences below are no proof: an output may be rounding alone, and rounding may differ between calls."""
_COMPARED = frozenset({torch.float64, torch.float32, torch.float16, torch.bfloat16})
_INTEGERS = frozenset({torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})
_HINT = "reset tensors kept between calls at the start of forward; draw random numbers with PyTorch"
_ELEMENTS = 1 << 18
"""Evenly spaced elements for the comparison."""


def refuse_state(problem: Problem, outputs: Value, again: Value) -> None:
    """Raise ProblemError if `again`, of a call with equal inputs, weights and random seed, differs from `outputs`.

    Answers of a reference that keeps state between calls follow from more than inputs and weights. The judge computes
    several calls of the reference for one call of a submission, so both sides would be in different states. A row
    block, of another shape, is not compared.
    """
    for first, second in zip(tensors_of(outputs), tensors_of(again), strict=False):
        if first.shape != second.shape:
            continue
        if first.dtype in _INTEGERS:
            if float((first != second).double().mean()) > _MOST:
                raise ProblemError(f"{problem.name}: the reference's answers to two equal calls differ", hint=_HINT)
            continue
        if first.dtype not in _COMPARED:
            continue
        step = max(first.numel() // _ELEMENTS, 1)
        one, other = (side.reshape(-1)[::step].double() for side in (first, second))
        both = one.isfinite() & other.isfinite()
        size, distance = (float(values[both].square().mean().sqrt()) for values in (one, other - one))
        if distance > _LEAST and distance > _MOST * size:
            message = (
                f"{problem.name}: the reference's answers to two equal calls differ by {distance:.2g}, and their size "
                f"is {size:.2g} (root mean squares)"
            )
            raise ProblemError(message, hint=_HINT)
