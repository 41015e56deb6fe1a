"""Bytes and operations of a reference call, counted on PyTorch's meta device without allocating memory.

The problem's own code runs, as in `judge/reference/reference.py`; its author is trusted. Tensors have shapes and no
memory, so the count takes the time of the Python code, for a problem of any size.
"""

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from evaluator.catalog import sized_source
from evaluator.problem_code import CudaMeans
from evaluator.protocol import model_call
from evaluator.protocol.operations import OperationMode, flop_of
from evaluator.protocol.pytree import mapped, tensors_of
from evaluator.records import CaseName, Mode, Problem
from evaluator.roofline.least_time import COUNT, CallWork, WorkBySize

_ONLY_SHAPES = ("_like", "new_empty", "new_zeros", "new_ones", "new_full", "new_empty_strided")


def identity(tensor: torch.Tensor) -> int:
    """Return an identifier of the storage of `tensor`.

    A storage on the meta device has no address; PyTorch's storage object identifies it during its lifetime.
    """
    name: int = tensor.untyped_storage()._cdata  # noqa: SLF001 - there is no public identity
    return name


def covered_bytes(tensors: Iterable[torch.Tensor]) -> dict[int, int]:
    """Return an upper bound on the bytes of each storage that `tensors` cover.

    Several tensors may share bytes, and an expanded tensor has more elements than memory: the storage's size is a
    bound. A slice is smaller than its storage: the sum over the tensors' elements is another.
    """
    sizes: dict[int, int] = {}
    elements: dict[int, dict[tuple[Any, ...], int]] = {}
    for tensor in tensors:
        key, layout = identity(tensor), (tensor.storage_offset(), *tensor.shape, *tensor.stride())
        sizes[key] = tensor.untyped_storage().nbytes()
        elements.setdefault(key, {})[layout] = tensor.numel() * tensor.element_size()
    return {key: min(size_bytes, sum(elements[key].values())) for key, size_bytes in sizes.items()}


class Looks(OperationMode):
    """Recorder of the storages with values used by the code inside, and of its FLOP.

    Views and tensors of the same shape use no values.
    """

    def __init__(self) -> None:
        """Start without storages."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.storages: set[int] = set()
        self.flop = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Record the tensors and the FLOP of an operation, and run the operation."""
        if not _only_shapes(func):
            leaves = pytree.tree_leaves((args, kwargs or {}))
            self.storages |= {identity(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)}
        operation: Callable[..., Any] = func
        result = operation(*args, **(kwargs or {}))
        self.flop += flop_of(func, args, kwargs or {}, result)
        return result


def _only_shapes(func: Any) -> bool:
    """Return whether an operation ignores the values of its tensors, and makes a view or a tensor of the same shape."""
    schema = func._schema  # noqa: SLF001 - there is no other way to an operation's schema
    makes_view = any(result.alias_info is not None and not result.alias_info.is_write for result in schema.returns)
    return makes_view or schema.name.endswith(_ONLY_SHAPES)


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
