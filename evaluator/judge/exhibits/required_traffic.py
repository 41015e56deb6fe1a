"""Required traffic and operations of a call: counted on the meta device, corrected by samples of real inputs."""

import copy
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from evaluator.cache.build_cache import measured_once
from evaluator.judge.reference.reference import Reference
from evaluator.judge.setup.seed_book import fresh_seed
from evaluator.judge.tensors.call_arguments import Arguments
from evaluator.judge.tensors.number_formats import are_equal
from evaluator.protocol import model_call
from evaluator.protocol.model_call import seed_torch
from evaluator.protocol.pytree import mapped, tensors_of
from evaluator.records import CaseName, Flips, Problem
from evaluator.roofline.attained import Needs
from evaluator.roofline.input_sensitivity import BUDGET_S, Undetermined, changeable, sample
from evaluator.roofline.work_count import Uncountable, count, covered_bytes

_Answer = Callable[[], list[torch.Tensor]]
_SMALL_PART = 0.01
"""Weights below this part of the read bytes count as required, without samples."""


class TrafficUnknown(Exception):
    """The required traffic of a call cannot be determined; the message has the reason."""


def required_traffic(problem: Problem, size: CaseName, reference: Reference) -> Needs:
    """Return the needs of a call of `problem`, from the cache if known.

    Raises:
        TrafficUnknown: the needs cannot be determined.
    """
    text = hashlib.sha256(reference.source.encode()).hexdigest()
    parts = ["needs", text, problem.mode.value, problem.backward, str(torch.__version__)]
    return measured_once(parts, Needs, lambda: worked_out(problem, size, reference))


def worked_out(problem: Problem, size: CaseName, reference: Reference, budget_s: float = BUDGET_S) -> Needs:
    """Count and sample now, with a limit of `budget_s` for each round of samples. Raises TrafficUnknown."""
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
    call_tensors = changeable([*tensors_of(inputs.args), *tensors_of(inputs.kwargs), *(gradients or [])])
    state = changeable([*reference.model.parameters(), *reference.model.buffers()])
    state_bytes = sum(covered_bytes(state).values())
    sampled = state if state_bytes > _SMALL_PART * counted.read_bytes else []
    return Needs(
        read_bytes=counted.read_bytes,
        written_bytes=counted.written_bytes,
        flop=counted.flop,
        input_bytes=sum(covered_bytes(call_tensors).values()),
        state_bytes=state_bytes,
        input_flips=_flips(answer, in_float64, call_tensors, budget_s),
        state_flips=_flips(answer, None, sampled, budget_s),
        distinct_bytes=distinct_bytes(answer()),
        distinct_input_bytes=distinct_bytes(call_tensors),
    )


def distinct_bytes(tensors: Sequence[torch.Tensor]) -> int:
    """Count the bytes of tensors, with only a single place of each constant dimension.

    An output with a constant dimension can be returned as an expanded view. A constant dimension of an input needs a
    single read, and half of a symmetric input is enough. Only two places of each dimension are compared, so the count
    is never too large.
    """
    return sum(_distinct_elements(tensor) * tensor.element_size() for tensor in tensors)


def _distinct_elements(tensor: torch.Tensor) -> int:
    elements = 1
    for dimension, size in enumerate(tensor.shape):
        if size < 2 or not are_equal(tensor.select(dimension, 0), tensor.select(dimension, 1)):
            elements *= size
    square = tensor.dim() > 1 and tensor.shape[-1] == tensor.shape[-2] > 1
    return elements // 2 if square and are_equal(tensor, tensor.mT) else elements


def _answerer(
    model: Any,
    inputs: Arguments,
    gradients: list[torch.Tensor] | None,
    random_seed: int,
    copied: Callable[[torch.Tensor], torch.Tensor] = torch.clone,
) -> _Answer:
    """Return a function from the current values of the tensors to the model's answer."""

    def answer() -> list[torch.Tensor]:
        seed_torch(random_seed)
        args, kwargs = mapped(inputs.args, copied), mapped(inputs.kwargs, copied)
        back = None if gradients is None else [copied(gradient) for gradient in gradients]
        outputs, model_gradients = model_call.run(model, args, kwargs, back)
        gradient_tensors = [gradient for gradient in (model_gradients or {}).values() if gradient is not None]
        return [tensor.detach() for tensor in (*tensors_of(outputs), *gradient_tensors)]

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
    """Sample in the problem's own precision, and if some changes had no effect, also in float64.

    The mean of a billion values hides a change of a few values, although a correct program must have read all of them.
    """
    if not among:
        return None
    flips = sample(answer, among, budget_s=budget_s)
    if isinstance(flips, Undetermined):
        raise TrafficUnknown(flips.reason)
    if in_float64 is None or flips.mattered == flips.samples:
        return flips
    try:
        wide = sample(in_float64, among, budget_s=budget_s)
    except RuntimeError:  # The model casts, or does not fit into memory.
        return flips
    if isinstance(wide, Undetermined) or wide.mattered * flips.samples < flips.mattered * wide.samples:
        return flips
    return wide
