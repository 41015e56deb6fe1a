"""Problems and forms of half precision, wrong and honest, for the tables of `low_precision_table` and `honest_grades`.

A form is a function of a call's plan. Operands stay as given, products and sums are in fp32, and a result is rounded
where the reference stores a tensor, or once at the end: forms like this are honest. The wrong forms take operands in
fewer bits, accumulate in half precision, leave terms out, or answer something near the truth.
"""

import contextlib
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch

from benchmarks.numerics.generated_problems import problem_of
from benchmarks.numerics.honest_forms import aten, by_context
from benchmarks.numerics.judged_answers import Answer, Setup, set_up
from evaluator.admission.negative_controls import ControlCall as ControlCase
from evaluator.admission.negative_controls import NegativeControl
from evaluator.admission.negative_controls import answer as answer_of_control
from evaluator.admission.numeric_controls import Effect, Operands, with_operands_in, with_terms_left_out
from evaluator.errors import ProblemError
from evaluator.judge.numerics.arithmetic_modes import SummationOrder, in_order, with_handlers
from evaluator.judge.numerics.composites import COMPOSITES
from evaluator.judge.reference.call_plan import CallPlan
from evaluator.judge.reference.reference import by_path
from evaluator.protocol import model_call
from evaluator.protocol.pytree import mapped, tensors_of
from evaluator.records import Precision, Profile, SizeName

_CHUNK = 16
"""Terms that a tensor core adds at once."""
_PARTS = 4
_KEPT_BITS = {torch.bfloat16: -(1 << 16), torch.float16: -(1 << 13)}
"""Mask of the bits of an fp32 number that a format keeps; for fp16, of numbers that are not subnormal."""


class DoesNotApplyError(ProblemError):
    """A form is the reference, or nothing, on a problem."""


class Formula(NamedTuple):
    """Arguments and expression of a forward, its inputs, and a statement of its constructor."""

    arguments: str
    forward: str
    inputs: str
    init: str = "pass"


# The eps of RMSNorm is by default that of the dtype: a fused kernel in fp32 would compute another function.
_F = "torch.nn.functional."
_ROWS = "torch.randn({rows}, {terms})"
PROBLEMS = {
    "product": Formula("a, b", "a @ b", f"{_ROWS}, torch.randn({{terms}}, {{rows}})"),
    "positive product": Formula("a, b", "a @ b", "torch.rand({rows}, {terms}), torch.rand({terms}, {rows})"),
    "linear, GELU": Formula("x", f"{_F}gelu(self.linear(x))", _ROWS, "self.linear = nn.Linear({terms}, 4 * {rows})"),
    "convolution": Formula(
        "x", "self.conv(x)", "torch.randn(2, {terms} // 8, 8, {rows})", "self.conv = nn.Conv2d({terms} // 8, 16, 3)"
    ),
    "softmax": Formula("x", "torch.softmax(x, 1)", _ROWS),
    "layer norm": Formula("x", "self.norm(x)", _ROWS, "self.norm = nn.LayerNorm({terms})"),
    "RMS norm": Formula("x", "self.norm(x)", _ROWS, "self.norm = nn.RMSNorm({terms}, eps=1e-5)"),
    "instance norm": Formula("x", f"{_F}instance_norm(x)", "torch.randn(2, {rows} // 2, {terms} // 8, 8)"),
    "cross entropy": Formula(
        "x, y", f"{_F}cross_entropy(x, y)", "torch.randn({terms}, 64), torch.randint(64, ({terms},))"
    ),
    "attention": Formula(
        "q, k, v",
        f"{_F}scaled_dot_product_attention(q, k, v)",
        "*(torch.randn(2, {rows} // 2, {terms} // 8, 32) for _ in range(3))",
    ),
    "row sums": Formula("x", "x.sum(1)", "torch.rand({rows}, {terms})"),
}


def set_up_half(name: str, precision: Precision, rows: int, terms: int, device: str) -> Setup:
    """Prepare a problem of `PROBLEMS` as a grade does."""
    formula = PROBLEMS[name]
    made = problem_of(
        *(formula.arguments, formula.forward, formula.inputs),
        rows=rows,
        terms=terms,
        init=formula.init,
        precision=precision,
    )
    return set_up(made, SizeName.FULL, device)


def rounded_once(plan: CallPlan) -> model_call.Result:
    """Return the result of a kernel with a fused epilogue, which rounds once, at the end."""
    return _stored(plan, lambda exact, dtype: exact.to(dtype))


def _stored(plan: CallPlan, store: Callable[[torch.Tensor, torch.dtype], torch.Tensor]) -> model_call.Result:
    """Return the result in float64, with `store` for each tensor and the dtype of the reference."""
    reference = plan.reference
    if reference.exact_model is None:
        raise ProblemError("this reference has no float64")
    wide = reference.altered(plan.inputs, plan.random_seed, plan.gradients, contextlib.nullcontext(), in_float64=True)
    dtypes = iter([tensor.dtype for tensor in tensors_of(reference.outline)])

    def stored(tensor: torch.Tensor) -> torch.Tensor:
        dtype = next(dtypes)
        return store(tensor, dtype) if dtype.is_floating_point else tensor.to(dtype)

    result = wide._replace(outputs=mapped(wide.outputs, stored))
    if wide.gradients is None:
        return result
    plain = reference.altered(plan.inputs, plan.random_seed, plan.gradients, contextlib.nullcontext()).gradients or {}
    return result._replace(
        gradients={
            name: None if tensor is None or (like := plain.get(name)) is None else store(tensor, like.dtype)
            for name, tensor in wide.gradients.items()
        }
    )


def _scaled(plan: CallPlan, factor: float) -> model_call.Result:
    return _stored(plan, lambda exact, dtype: (exact * factor).to(dtype))


def _cut_off(plan: CallPlan) -> model_call.Result:
    """Return results cut off to the reference's dtype, in place of rounded to nearest."""

    def cut(exact: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        if dtype not in _KEPT_BITS:
            return exact.to(dtype)
        bits = exact.float().contiguous().view(torch.int32) & _KEPT_BITS[dtype]
        return torch.where(exact.isfinite(), bits.view(torch.float32), exact.float()).to(dtype)

    return _stored(plan, cut)


def _by_control(control: NegativeControl) -> Answer:
    """Return the answer of a control of admissions that alters outputs."""

    def answer(plan: CallPlan) -> model_call.Result:
        exact = rounded_once(plan)
        case = ControlCase(plan.reference, plan.reference, plan.inputs, plan.inputs, by_path(exact), {})
        altered = answer_of_control(control, case)
        if altered is None:
            raise DoesNotApplyError("the form does not apply")
        values = iter([value for value in altered.values() if isinstance(value, torch.Tensor)])
        return exact._replace(outputs=mapped(exact.outputs, lambda _: next(values)))

    return answer


def _with_effect(form: Callable[[Effect], Any]) -> Answer:
    """Return an answer in the arithmetic of a context that may have no effect on a problem.

    Raises:
        DoesNotApplyError: the context has no effect on the problem's own values. The form is then the reference.
    """

    def answer(plan: CallPlan) -> model_call.Result:
        effect = Effect()
        result = by_context(lambda: form(effect))(plan)
        if plan.profile is Profile.AS_GIVEN and not effect.changed:
            raise DoesNotApplyError("the form does not apply")
        return result

    return answer


def _adding(chunk: Callable[[int], int], dtype: torch.dtype = torch.float32) -> Answer:
    """Return the answer with accumulators of a dtype. `chunk` gives how many of the terms of a sum are added at once.

    Sums and biases are in fp32; a result is rounded to the dtype of the reference's result.
    """

    def summed(parts: Iterable[torch.Tensor]) -> torch.Tensor:
        return functools.reduce(
            lambda total, part: (total + part).to(dtype), (part.to(dtype) for part in parts)
        ).float()

    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        left, right = (
            torch.split(a.float(), chunk(a.shape[-1]), -1),
            torch.split(b.float(), chunk(a.shape[-1]), min(b.dim(), 2) * -1),
        )
        return summed(one @ other for one, other in zip(left, right, strict=True))

    def plain(_: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return product(a, b).to(a.dtype)

    def added(
        _: Any, c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: float = 1, alpha: float = 1
    ) -> torch.Tensor:
        return (beta * c.float() + alpha * product(a, b)).to(a.dtype)

    def convolution(func: Any, x: torch.Tensor, weight: torch.Tensor, bias: Any, *rest: Any) -> torch.Tensor:
        _, _, _, transposed, _, groups = rest
        # The channels of a group are added at once.
        channels = chunk(x.shape[1]) if groups == 1 else x.shape[1]
        left = torch.split(x.float(), channels, 1)
        right = torch.split(weight.float(), channels if groups == 1 else weight.shape[0], 0 if transposed else 1)
        total = summed(func(one, other, None, *rest) for one, other in zip(left, right, strict=True))
        total = total if bias is None else total + bias.float().reshape(-1, *(1,) * (x.dim() - 2))
        return total.to(x.dtype)

    def total(func: Any, x: torch.Tensor, dims: Any = None, keepdim: bool = False, **options: Any) -> torch.Tensor:  # noqa: FBT001, FBT002 - aten's order
        along = [dim % x.dim() for dim in dims] if dims else list(range(x.dim()))
        if not along or not x.is_floating_point() or not x.numel():
            rest = () if dims is None else (dims, keepdim)
            return func(x, *rest, **options)  # type: ignore[no-any-return]
        terms = x.float().movedim(along, list(range(-len(along), 0))).flatten(-len(along))
        result = summed(part.sum(-1) for part in torch.split(terms, chunk(terms.shape[-1]), -1))
        result = result / terms.shape[-1] if func in (aten.mean.default, aten.mean.dim) else result
        result = (
            result.reshape([1 if dim in along else size for dim, size in enumerate(x.shape)]) if keepdim else result
        )
        return result.to(options.get("dtype") or x.dtype)

    handlers: dict[Any, Callable[..., Any]] = {
        **dict.fromkeys((aten.mm.default, aten.bmm.default, aten.mv.default, aten.dot.default), plain),
        **dict.fromkeys((aten.addmm.default, aten.addmv.default, aten.baddbmm.default), added),
        **dict.fromkeys((aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.mean.dim), total),
        aten.convolution.default: convolution,
    }
    return by_context(lambda: with_handlers(handlers, COMPOSITES))


HONEST: Mapping[str, Answer] = {
    "PyTorch": by_context(contextlib.nullcontext),
    "reversed": by_context(lambda: in_order(SummationOrder.REVERSED)),
    "fp32, one accumulator": _adding(lambda _: 1),
    "fp32, split": _adding(lambda terms: -(-terms // _PARTS)),
    "fp32, as tensor cores": _adding(lambda _: _CHUNK),
    "fused, rounded once": rounded_once,
}
"""Honest forms. But for the last one, they round where the reference stores a tensor."""
WRONG: Mapping[str, Answer] = {
    **{
        f"operands in {to.value}": _with_effect(functools.partial(with_operands_in, to))
        for to in (Operands.FP8, Operands.INT8, Operands.INT4, Operands.BF16)
    },
    "accumulators in bf16": _adding(lambda _: _CHUNK, torch.bfloat16),
    "accumulators in fp16": _adding(lambda _: _CHUNK, torch.float16),
    "a quarter of the terms": _with_effect(lambda effect: with_terms_left_out(effect, eighths=2)),
    "seven eighths of the terms": _with_effect(with_terms_left_out),
    "rank one": _by_control(NegativeControl.RANK_ONE),
    "the mean": _by_control(NegativeControl.MEAN),
    "1 % too large": lambda plan: _scaled(plan, 1.01),
    "cut off": _cut_off,
}
"""Wrong forms. A form that does not apply to a problem raises DoesNotApplyError."""
_ONLY_IN_FP16 = frozenset({"accumulators in fp16", "operands in bf16"})


def wrong_forms(precision: Precision) -> dict[str, Answer]:
    """Return the forms that are wrong in a precision of half the bits."""
    return {name: form for name, form in WRONG.items() if precision is Precision.FP16 or name not in _ONLY_IN_FP16}
