"""What a grade needs of its problem before the first call: the reference on its device, and plans for its values."""

import contextlib
import time
from collections.abc import Iterator
from typing import NamedTuple

import torch

from evaluator.compile.device_builders import DeviceBuilders
from evaluator.devices.out_of_memory import out_of_memory
from evaluator.errors import ProblemError
from evaluator.judge.backend.device_backend import CallSizes, DeviceBackend, GpuBackend, HostBackend
from evaluator.judge.reference.reference import Reference
from evaluator.judge.setup.distribution_mix import DistributionMix, distribution_mix_for
from evaluator.judge.setup.memory_plan import judge_bytes
from evaluator.judge.setup.seed_book import fresh_seed
from evaluator.judge.setup.terms import Terms
from evaluator.judge.tensors.pytree import extent_bytes, tensors
from evaluator.records import Layout


class ProblemSetup(NamedTuple):
    """A problem on its device: which values calls may have, what the device brings, how long one call took.

    Of a GPU's memory the judge is to have `judge_bytes`, weights and all (`keep_memory`).
    """

    reference: Reference
    distribution_mix: DistributionMix
    backend: DeviceBackend
    reference_s: float
    judge_bytes: int = 0


def set_up_problem(terms: Terms, weight_seed: int, device_builders: DeviceBuilders) -> ProblemSetup:
    """Run the problem's own code, and plan memory for what it needs. Raises ProblemError where it is broken."""
    reference = Reference(terms.problem, terms.size, weight_seed, "cpu" if terms.gpu is None else "cuda")
    distribution_mix = distribution_mix_for(reference, terms.size, terms.options.tolerance)
    sizes, reference_s = try_one_call(reference, on_gpu=terms.gpu is not None)
    if terms.gpu is None:
        return ProblemSetup(reference, distribution_mix, HostBackend(sizes, device_builders), reference_s)
    # Given back: until the GPU is this grade's for good (`GradeContext.have_device`), another one may need it.
    torch.cuda.empty_cache()
    free_bytes, _ = torch.cuda.mem_get_info()
    sizes = planned(reference, sizes, free_bytes)
    own_bytes = torch.cuda.memory_allocated() + sizes.judge_bytes
    return ProblemSetup(reference, distribution_mix, GpuBackend(sizes, device_builders), reference_s, own_bytes)


def planned(reference: Reference, sizes: CallSizes, free_bytes: int) -> CallSizes:
    """Leave float64 out where it leaves a runner no room on the GPU: later, that would be for a submission to decide.

    Gives the sizes as they are then.
    """
    if sizes.judge_bytes + sizes.runner_bytes + sizes.temporary_bytes <= free_bytes:
        return sizes
    reference.leave_float64()
    return sizes._replace(judge_bytes=sizes.plain_judge_bytes)


def keep_memory(size_bytes: int) -> None:
    """Have PyTorch's allocator have so much of a GPU in all, before there is a submission that could take it.

    Where it has as much already this changes nothing. Raises MemoryError.
    """
    missing_bytes = size_bytes - torch.cuda.memory_reserved() if size_bytes else 0
    if missing_bytes > 0:
        with out_of_memory():
            torch.empty(missing_bytes, dtype=torch.uint8, device="cuda")  # Freed at once, and kept by the allocator.


def try_one_call(reference: Reference, *, on_gpu: bool) -> tuple[CallSizes, float]:
    """Run the reference once on inputs that are thrown away, to learn sizes and time (s), and that it works at all.

    And whether it does in float64 (`Reference.settle_float64`). Raises ProblemError where the problem is broken.
    """
    problem = reference.problem
    inputs = reference.draw(fresh_seed())
    started = time.monotonic()
    with _peak_of_gpu(on_gpu=on_gpu) as peak:
        outputs = reference.forward(inputs, 0)
    reference_s = time.monotonic() - started
    found = tensors(outputs)
    if not found:
        raise ProblemError(f"{problem.name}: the reference's forward returns no tensor")
    if any(leaf.numel() == 0 for leaf in found):
        raise ProblemError(f"{problem.name}: the reference's output is empty, with no element to compare")
    given = [*tensors(inputs.args), *tensors(inputs.kwargs)]
    state = [*tensors(reference.state()), *tensors(list(reference.init))]
    backward = problem.backward
    room = 2 if Layout.GAPS in problem.layouts else 1
    input_bytes = _bytes([*given * room, *state, *(found if backward else [])])
    output_bytes = _bytes(found) + (_bytes([*given, *state]) if backward else 0)
    gradients = reference.output_gradients(outputs, 0) if backward else None
    if backward and on_gpu:
        with _peak_of_gpu(on_gpu=on_gpu) as peak:
            reference.honest(inputs, 0, gradients)
    copies_bytes = sum(leaf.numel() * leaf.element_size() for leaf in given)  # It ran on copies, without gaps.
    peak_bytes = max(peak.size_bytes - copies_bytes, 0)
    reference.settle(inputs, outputs)
    reference.settle_weights(inputs)
    with _peak_of_gpu(on_gpu=on_gpu) as exact:
        reference.settle_float64(inputs, gradients)
    exact_bytes = 0 if reference.exact_model is None else exact.size_bytes
    blocks = 1 if backward else len(reference.blocks(inputs))
    both, plain = (
        judge_bytes(input_bytes, output_bytes, peak_bytes=peak_bytes, exact_bytes=more_bytes, blocks=blocks)
        for more_bytes in (exact_bytes, 0)
    )
    sizes = CallSizes(input_bytes, output_bytes, peak_bytes, both, plain, _bytes(tensors(reference.state())))
    return sizes, reference_s


class _Peak:
    """The most that PyTorch held of a GPU's memory beside what it held before, in bytes; 0 where there is no GPU."""

    size_bytes = 0


@contextlib.contextmanager
def _peak_of_gpu(*, on_gpu: bool) -> Iterator[_Peak]:
    """Wait for what is done under it, and learn how much memory it took."""
    peak = _Peak()
    if not on_gpu:
        yield peak
        return
    torch.cuda.reset_peak_memory_stats()
    before_bytes = torch.cuda.memory_allocated()
    yield peak
    torch.cuda.synchronize()
    peak.size_bytes = torch.cuda.max_memory_allocated() - before_bytes


def _bytes(found: list[torch.Tensor]) -> int:
    """Give the room that tensors need: as they lie, gaps included, or copied element by element."""
    return sum(max(extent_bytes(leaf), leaf.numel() * leaf.element_size()) + 512 for leaf in found)
