"""Forms of a reference that authors of kernels confuse with the reference, by dispatch mode.

Examples are GELU's tanh form, the variance divided by n instead of n - 1, a batch norm by running statistics, a norm
without epsilon, a softmax along another dimension, and a reference without an operation, without a parameter, or with a
matrix read in another order.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from evaluator.findings.comparing import BATCH_STATISTICS, CONTIGUOUS, REFERENCE_PART
from evaluator.judge.numerics.arithmetic_modes import with_handlers
from evaluator.judge.reference.reference import Reference
from evaluator.judge.reference.running_statistics import by_running_statistics
from evaluator.judge.setup.operation_cost import Cost, TrafficCounter
from evaluator.protocol.operations import OperationMode

aten = torch.ops.aten
_MOST_PARAMETERS = 16
_MOST_LEFT_OUT = 12
_MATRIX = 2
_BY_RUNNING_STATISTICS = "with its batch norm by running statistics, and not by those of the batch"
_POOLING_DEFAULTS = (None, None, (), 0, False, True)
_COUNT_INCLUDE_PAD = 5
_SIGMOID_FACTOR = 1.702


class Form(NamedTuple):
    """A form of the reference: a clause that follows "the reference", and the context in which the reference has it.

    A form that `mixes_rows` makes an output's row depend on other rows, even where the reference does not.
    """

    clause: str
    context: Callable[[], contextlib.AbstractContextManager[None]]
    next_step: str = REFERENCE_PART
    mixes_rows: bool = False


class Trace(NamedTuple):
    """Operations of a forward, in order of first use, and their cost.

    `same_shape` are the operations on floating-point tensors that return their input's shape.
    """

    operations: list[Any]
    same_shape: list[Any]
    cost: Cost


def known_forms(reference: Reference, trace: Trace) -> Iterator[Form]:
    """Yield the forms that differ from the reference, the most specific first.

    A reference that reads by computed indices has none: other indices may lie outside of a tensor, and on a GPU such a
    read ends the judge's context.
    """
    if any(_name(operation).startswith(_INDEXING) for operation in trace.operations):
        return
    for clause, operations, change in _CHANGES:
        if used := [operation for operation in operations if operation in trace.operations]:
            yield _form(clause, dict.fromkeys(used, change))._replace(mixes_rows=change is _softmax_over_next)
    model, statistics = reference.exact_model, reference.running_statistics
    if model is not None and statistics:
        context = functools.partial(by_running_statistics, model, statistics)
        yield Form(_BY_RUNNING_STATISTICS, context, BATCH_STATISTICS)
    for operation in trace.same_shape[:_MOST_LEFT_OUT]:
        yield _form(f"without {_name(operation)}", {operation: _as_identity})
        if operation in _OF_TWO:
            yield _form(f"with the second operand of {_name(operation)} alone", {operation: _second_operand})
    if model is not None:
        yield from _parameter_forms(list(model.named_parameters())[:_MOST_PARAMETERS])


def _parameter_forms(parameters: Sequence[tuple[str, torch.nn.Parameter]]) -> Iterator[Form]:
    for name, parameter in parameters:
        if parameter.dim() == _MATRIX:
            clause = f"with {name} read in the order of its transpose (a transposed view is not contiguous)"
            yield Form(clause, functools.partial(_changed, parameter, _as_transposed_view), CONTIGUOUS)
    for name, parameter in parameters:
        value = 0.0 if name.endswith("bias") else 1.0
        clause = f"with {value:g} in place of the parameter {name}"
        yield Form(clause, functools.partial(_changed, parameter, functools.partial(torch.full_like, fill_value=value)))


def traced(forward: Callable[[Callable[[], contextlib.AbstractContextManager[None]]], object]) -> Trace:
    """Return the operations of `forward`, which runs once, in the context that its argument makes."""
    recorder, traffic = _Recorder(), TrafficCounter()

    @contextlib.contextmanager
    def recorded() -> Iterator[None]:
        with recorder, traffic:
            yield

    forward(recorded)
    return Trace(list(recorder.operations), list(recorder.same_shape), traffic.cost)


class _Recorder(OperationMode):
    """Dispatch mode that records operations."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: dict[Any, None] = {}
        self.same_shape: dict[Any, None] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        del types
        result = func(*args, **(kwargs or {}))
        self.operations[func] = None
        operand = args[0] if args else None
        if (
            isinstance(operand, torch.Tensor)
            and isinstance(result, torch.Tensor)
            and operand.is_floating_point()
            and (operand.shape, operand.dtype) == (result.shape, result.dtype)
            and func not in _NOT_COMPUTED
            and not func.is_view
        ):
            self.same_shape[func] = None
        return result


_NOT_COMPUTED = frozenset({aten.clone.default, aten.detach.default, aten._to_copy.default, aten.copy_.default})  # noqa: SLF001
_OF_TWO = frozenset({aten.add.Tensor, aten.mul.Tensor})
_BATCH_NORMS = (
    *(aten.native_batch_norm.default, aten._native_batch_norm_legit.default),  # noqa: SLF001
    *(aten._native_batch_norm_legit.no_stats, aten._native_batch_norm_legit_no_training.default),  # noqa: SLF001
    aten.cudnn_batch_norm.default,
)


_INDEXING = (
    *("index", "gather", "scatter", "embedding", "nll_loss", "take", "put", "select_scatter", "bincount"),
    *("searchsorted", "one_hot", "grid_sampler", "max_unpool", "repeat_interleave", "multi_margin"),
)


def _form(clause: str, handlers: Mapping[Any, Callable[..., Any]]) -> Form:
    return Form(clause, functools.partial(with_handlers, handlers))


def _name(operation: Any) -> str:
    """Return PyTorch's name of an operation.

    >>> _name(torch.ops.aten.relu.default)
    'relu'
    """
    return str(operation).removeprefix("aten.").split(".")[0].strip("_")


def _as_identity(func: Any, x: torch.Tensor, *rest: Any, **options: Any) -> torch.Tensor:
    del func, rest, options
    return x.clone()


def _second_operand(func: Any, x: torch.Tensor, other: Any, *rest: Any, **options: Any) -> torch.Tensor:
    if isinstance(other, torch.Tensor) and other.shape == x.shape:
        return other.clone()
    return func(x, other, *rest, **options)  # type: ignore[no-any-return]


def _gelu(func: Any, x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    return func(x, approximate="tanh" if approximate == "none" else "none")  # type: ignore[no-any-return]


def _gelu_by_sigmoid(func: Any, x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    """Return GELU's approximation by a sigmoid (Hendrycks and Gimpel, arXiv:1606.08415), off by up to 0.02."""
    del func, approximate
    return x * torch.sigmoid(_SIGMOID_FACTOR * x)


def _variance(func: Any, x: torch.Tensor, *rest: Any, correction: float | None = None, **options: Any) -> Any:
    return func(x, *rest, correction=0 if correction is None or correction else 1, **options)


def _last_is_0(func: Any, *args: Any, **options: Any) -> Any:
    return func(*args[:-1], 0.0, **options)


def _softmax_over_next(func: Any, x: torch.Tensor, dim: int, *rest: Any) -> Any:
    return func(x, (dim + 1) % x.dim() if x.dim() else dim, *rest)


def _mean_as_sum(func: Any, x: torch.Tensor, *rest: Any, **options: Any) -> torch.Tensor:
    return (aten.sum.default if func is aten.mean.default else aten.sum.dim_IntList)(x, *rest, **options)  # type: ignore[no-any-return]


def _padding_not_counted(func: Any, *args: Any) -> Any:
    """Exchange `count_include_pad`, the sixth parameter. Parameters at their defaults are not passed."""
    arguments = [*args, *_POOLING_DEFAULTS[len(args) :]]
    arguments[_COUNT_INCLUDE_PAD] = not arguments[_COUNT_INCLUDE_PAD]
    return func(*arguments)


_CHANGES: tuple[tuple[str, tuple[Any, ...], Callable[..., Any]], ...] = (
    ("with GELU's other form (tanh in place of erf, or erf in place of tanh)", (aten.gelu.default,), _gelu),
    ("with x * sigmoid(1.702 * x) in place of GELU", (aten.gelu.default,), _gelu_by_sigmoid),
    (
        "with the variance's other divisor (n in place of n - 1, or n - 1 in place of n)",
        (aten.var.correction, aten.std.correction, aten.var_mean.correction),
        _variance,
    ),
    (
        "with an epsilon of 0 in its norm",
        (
            *(aten.native_layer_norm.default, aten.native_group_norm.default),
            *_BATCH_NORMS,
        ),
        _last_is_0,
    ),
    (
        "with its softmax along the next dimension",
        (aten._softmax.default, aten._log_softmax.default),  # noqa: SLF001
        _softmax_over_next,
    ),
    ("with a sum in place of its mean", (aten.mean.default, aten.mean.dim), _mean_as_sum),
    (
        "with padding counted the other way in its average pooling (count_include_pad)",
        (aten.avg_pool2d.default, aten.avg_pool3d.default),
        _padding_not_counted,
    ),
)


@contextlib.contextmanager
def _changed(parameter: torch.nn.Parameter, change: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[None]:
    """Context with other values of a parameter."""
    before = parameter.detach().clone()
    try:
        with torch.no_grad():
            parameter.copy_(change(before))
        yield
    finally:
        with torch.no_grad():
            parameter.copy_(before)


def _as_transposed_view(matrix: torch.Tensor) -> torch.Tensor:
    """Return the values that a kernel finds where it takes a matrix for its transpose in row-major order.

    >>> _as_transposed_view(torch.tensor([[1, 2, 3], [4, 5, 6]]))
    tensor([[1, 3, 5],
            [2, 4, 6]])
    """
    return matrix.reshape(-1).view(matrix.shape[1], matrix.shape[0]).t()
