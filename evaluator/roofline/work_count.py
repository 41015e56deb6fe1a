"""Bytes and operations of a reference call, counted on PyTorch's meta device without allocating memory.

The problem's own code runs, as in `judge/reference/reference.py`; its author is trusted. Tensors have shapes and no
memory, so the count takes the time of the Python code, for a problem of any size.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

import torch

from evaluator.catalog import sized_source
from evaluator.problem_code import CudaMeans
from evaluator.protocol import model_call
from evaluator.protocol.pytree import mapped, tensors_of
from evaluator.records import CaseName, Mode, Problem
from evaluator.roofline.counted_work import COUNT, CallWork, WorkBySize
from evaluator.roofline.storages import Looks, covered_bytes

_META = torch.device("meta")
_MODULE = "roofline_model"


class Uncountable(NamedTuple):
    """Reason why a reference cannot be counted: the code needs values or a device, which the meta device lacks."""

    reason: str


def count_all(problem: Problem) -> WorkBySize:
    """Return the work of a call for each size."""
    known: dict[CaseName, CallWork] = {}
    unknown: dict[CaseName, str] = {}
    for size in problem.cases:
        match count(problem, size):
            case Uncountable(reason=reason):
                unknown[size] = reason
            case work:
                known[size] = work
    return WorkBySize(known, unknown)


run = COUNT.answered_by(count_all)


def count(problem: Problem, size: CaseName) -> CallWork | Uncountable:
    """Count one call of `problem` at `size`: forward, and backward if the problem grades gradients.

    Raises:
        ProblemError: the problem lacks the size, or the size contradicts the reference.
    """
    source = sized_source(problem, size)
    try:
        with contextlib.redirect_stdout(sys.stderr), registered() as module, _META, CudaMeans(_META):
            exec(compile(source, problem.path, "exec"), module.__dict__)  # noqa: S102 - the author's own code
            return _counted(module.__dict__, problem)
    except Exception as error:  # noqa: BLE001 - any exception means that there is no count
        return Uncountable(f"{type(error).__name__}: {error}")


def _counted(names: dict[str, Any], problem: Problem) -> CallWork | Uncountable:
    init_args, init_kwargs = arguments(names["get_init_inputs"])
    model = names["Model"](*init_args, **init_kwargs).to(_META)
    if problem.mode is Mode.EVAL:
        model.eval()
    args, kwargs = arguments(names["get_inputs"])
    args, kwargs = on_meta(args), on_meta(kwargs)
    inputs = tensors_of([args, kwargs])
    gradients = _output_gradients(model, args, kwargs) if problem.backward else None
    input_bytes = covered_bytes([*inputs, *model.parameters(), *model.buffers(), *(gradients or [])])
    with Looks() as looks:
        outputs, grads = model_call.run(model, args, kwargs, gradients)
    output_bytes = covered_bytes([*tensors_of(outputs), *(grad for grad in (grads or {}).values() if grad is not None)])
    return CallWork(
        read_bytes=sum(size_bytes for key, size_bytes in input_bytes.items() if key in looks.storages),
        written_bytes=sum(size_bytes for key, size_bytes in output_bytes.items() if key not in input_bytes),
        flop=looks.flop,
    )


def _output_gradients(model: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    outputs = model_call.forward(model, args, kwargs).outputs
    return [torch.empty_like(leaf) for leaf in model_call.differentiable(outputs)]


def on_meta(value: Any) -> Any:
    """Move tensors created elsewhere by the author's code (NumPy, an explicit device) to the meta device.

    Tensors keep a shared storage only if created on the meta device.
    """
    return mapped(value, lambda tensor: tensor.detach().to(_META))


def arguments(function: Callable[[], Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return the positional and keyword arguments created by `function` of a problem."""
    value = function()
    if isinstance(value, dict):
        return [], {str(key): item for key, item in value.items()}
    return list(value), {}


@contextlib.contextmanager
def registered() -> Iterator[ModuleType]:
    """Register a module by name: dataclasses and torch.jit look up a class's module in `sys.modules`."""
    module = sys.modules[_MODULE] = ModuleType(_MODULE)
    try:
        yield module
    finally:
        del sys.modules[_MODULE]
