"""What a call of a problem needs: counted on the meta device, and held to samples of the real inputs."""

import copy
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from evaluator.cache.measurements import measured_once
from evaluator.judge.reference.reference import Reference
from evaluator.judge.setup.seed_book import fresh_seed
from evaluator.judge.tensors.call_arguments import Arguments
from evaluator.judge.tensors.pytree import tensors
from evaluator.protocol import model_call
from evaluator.protocol.model_call import mapped
from evaluator.protocol.seeding import seed_torch
from evaluator.records import Flips, Problem, SizeName
from evaluator.roofline.attained import Needs
from evaluator.roofline.input_sensitivity import BUDGET_S, Undetermined, changeable, sample
from evaluator.roofline.storages import covered_bytes
from evaluator.roofline.work_count import Uncountable, count

_Answer = Callable[[], list[torch.Tensor]]
_SMALL_PART = 0.01
"""Weights that are less than this of what is read are taken to be needed, unsampled."""


class TrafficUnknown(Exception):
    """Nothing can be said of what a call needs; says why."""


def required_traffic(problem: Problem, size: SizeName, reference: Reference) -> Needs:
    """Give what a call of `problem` needs, from the cache where it was worked out before.

    Raises:
        TrafficUnknown: it cannot be worked out.
    """
    text = hashlib.sha256(reference.source.encode()).hexdigest()
    parts = ["needs", text, problem.mode.value, problem.backward, str(torch.__version__)]
    return measured_once(parts, Needs, lambda: worked_out(problem, size, reference))


def worked_out(problem: Problem, size: SizeName, reference: Reference, budget_s: float = BUDGET_S) -> Needs:
    """Count and sample now, in `budget_s` for each round of samples. Raises TrafficUnknown."""
    counted = count(problem, size)
    if isinstance(counted, Uncountable):
        raise TrafficUnknown(f"the reference does not run on the meta device: {counted.reason}")
    inputs = reference.draw(fresh_seed())
    random_seed = fresh_seed()
    gradients = None
    if problem.backward:
        gradients = reference.output_gradients(reference.forward(inputs, random_seed), fresh_seed())
    answer = _answerer(reference.model, inputs, gradients, random_seed)
    in_float64 = _in_float64(reference, inputs, gradients, random_seed)
    given = changeable([*tensors(inputs.args), *tensors(inputs.kwargs), *(gradients or [])])
    state = changeable([*reference.model.parameters(), *reference.model.buffers()])
    state_bytes = sum(covered_bytes(state).values())
    sampled = state if state_bytes > _SMALL_PART * counted.read_bytes else []
    return Needs(
        read_bytes=counted.read_bytes,
        written_bytes=counted.written_bytes,
        flop=counted.flop,
        input_bytes=sum(covered_bytes(given).values()),
        state_bytes=state_bytes,
        input_flips=_flips(answer, in_float64, given, budget_s),
        state_flips=_flips(answer, None, sampled, budget_s),
        distinct_bytes=distinct_bytes(answer()),
        distinct_input_bytes=distinct_bytes(given),
    )


def distinct_bytes(tensors: Sequence[torch.Tensor]) -> int:
    """Count the bytes of tensors, but of a dimension along which they do not change only one place.

    Such an output can be handed in as a view that repeats itself; such an input need be read once, and of a symmetric
    one half is enough. Two places of each dimension are looked at, so it is never too much.
    """
    return sum(_distinct_elements(each) * each.element_size() for each in tensors)


def _distinct_elements(tensor: torch.Tensor) -> int:
    elements = 1
    for dimension, size in enumerate(tensor.shape):
        if size < 2 or not torch.equal(tensor.select(dimension, 0), tensor.select(dimension, 1)):
            elements *= size
    square = tensor.dim() > 1 and tensor.shape[-1] == tensor.shape[-2] > 1
    return elements // 2 if square and torch.equal(tensor, tensor.mT) else elements


def _answerer(
    model: Any,
    inputs: Arguments,
    gradients: list[torch.Tensor] | None,
    random_seed: int,
    copied: Callable[[torch.Tensor], torch.Tensor] = torch.clone,
) -> _Answer:
    """Make a model's answer a function of the tensors as they are now."""

    def answer() -> list[torch.Tensor]:
        seed_torch(random_seed)
        args, kwargs = mapped(inputs.args, copied), mapped(inputs.kwargs, copied)
        back = None if gradients is None else [copied(each) for each in gradients]
        outputs, found = model_call.run(model, args, kwargs, back)
        given = [each for each in (found or {}).values() if each is not None]
        return [each.detach() for each in (*tensors(outputs), *given)]

    return answer


def _in_float64(
    reference: Reference, inputs: Arguments, gradients: list[torch.Tensor] | None, random_seed: int
) -> _Answer | None:
    try:
        wide = copy.deepcopy(reference.model).double()
    except Exception:  # noqa: BLE001 - a model that cannot be copied or cast: its own precision must do
        return None
    return _answerer(wide, inputs, gradients, random_seed, _widened)


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.float64 if tensor.is_floating_point() else tensor.dtype, copy=True)


def _flips(answer: _Answer, in_float64: _Answer | None, among: Sequence[torch.Tensor], budget_s: float) -> Flips | None:
    """Sample in the problem's own precision, and where some changes were without effect, in float64 too.

    The mean of a billion values swallows a change of a few, which a program that is right must have seen all the same.
    """
    if not among:
        return None
    found = sample(answer, among, budget_s=budget_s)
    if isinstance(found, Undetermined):
        raise TrafficUnknown(found.reason)
    if in_float64 is None or found.mattered == found.samples:
        return found
    try:
        wide = sample(in_float64, among, budget_s=budget_s)
    except RuntimeError:  # It casts by itself, or does not fit into memory.
        return found
    if isinstance(wide, Undetermined) or wide.mattered * found.samples < found.mattered * wide.samples:
        return found
    return wide
