"""Fewer bits than fp32 are told apart from other errors, by the errors themselves."""

import contextlib
import copy
import functools

import numpy as np
import pytest
import torch

from evaluator.devices.out_of_memory import ran_out
from evaluator.findings.comparing import IN_FP32_OR_A_STEP
from evaluator.judge.compare.tensor_comparison import Sides
from evaluator.judge.numerics import precision_sampler, reduced_precision, rounded_reference
from evaluator.judge.numerics.arithmetic_modes import Format, SummationOrder, in_order, rounded, with_operands
from evaluator.judge.numerics.error_size import Outsized
from evaluator.judge.numerics.precision_sampler import ErrorSample, PrecisionWatch
from evaluator.judge.numerics.reduced_precision import (
    ENOUGH_CALLS,
    FormatMatch,
    coarser_than,
    format_of,
    sampled,
)
from evaluator.judge.numerics.rounded_reference import CallErrors, Errors, ReferenceCall, rounded_weights
from evaluator.judge.reference.cancelling_rows import Slices
from evaluator.judge.reference.reference import by_path
from evaluator.records import Precision
from tests import cards
from tests.unit.references import reference

MLP = "self.two(torch.relu(self.one(x)))"
INIT = "self.one = nn.Linear(64, 128); self.two = nn.Linear(128, 64)"
GIVEN = "torch.randn(32, 64)"


@pytest.fixture
def mlp():
    return reference(MLP, GIVEN, INIT)


ALIKE = {Format.TF32: {Format.TF32, Format.FP16}, Format.FP16: {Format.TF32, Format.FP16}}


def found(made, actual, inputs):
    return named(asked(made, actual, inputs))


def asked(made, actual, inputs):
    expected = made.expected(inputs, 0, None)
    errors = sampled(actual, by_path(expected.exact)["output"], by_path(expected.honest)["output"])
    return CallErrors(lambda: ReferenceCall(made, inputs, 0, None, expected.in_float64), {"output": errors})


def named(*calls):
    seen = format_of(calls)
    return None if seen is None else seen.format


def is_found(made, actual, inputs, to):
    return found(made, actual, inputs) in ALIKE.get(to, {to})


def run(made, inputs, mode):
    return by_path(made.altered(inputs, 0, None, mode))["output"]


@pytest.mark.parametrize("to", Format)
def test_rounded_operands_are_recognised(mlp, to):
    inputs = mlp.draw(5)
    assert is_found(mlp, run(mlp, inputs, with_operands(to)), inputs, to)


@pytest.mark.parametrize("to", Format)
def test_rounded_inputs_and_weights_are_recognised(to):
    made = reference("torch.sin(x) * self.weight", "torch.randn(32, 64)", "self.weight = nn.Parameter(torch.randn(64))")
    inputs = made.draw(5)
    low = inputs._replace(args=[rounded(inputs.args[0], to)])
    before = made.model.weight.detach().clone()
    with rounded_weights(made.model, to):
        assert not made.model.weight.equal(before)
        actual = made.forward(low, 0)
    assert made.model.weight.equal(before)
    assert is_found(made, actual, inputs, to)


@pytest.mark.parametrize("to", [Format.BF16, Format.FP16])
def test_a_rounded_output_is_recognised(mlp, to):
    inputs = mlp.draw(5)
    half = torch.bfloat16 if to is Format.BF16 else torch.float16
    assert is_found(mlp, mlp.forward(inputs, 0).to(half).float(), inputs, to)


def test_a_model_in_bf16_is_recognised(mlp):
    inputs = mlp.draw(5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = mlp.forward(inputs, 0)
    assert found(mlp, actual.float(), inputs) is Format.BF16
    actual = copy.deepcopy(mlp.model).bfloat16()(inputs.args[0].bfloat16()).float()
    assert found(mlp, actual.detach(), inputs) is Format.BF16


@pytest.mark.parametrize(
    "wrong",
    [
        lambda right: right * 1.001,
        lambda right: right + 1e-3 * torch.randn(right.shape, generator=torch.Generator().manual_seed(1)),
        lambda right: right.roll(1, 0),
        torch.zeros_like,
        lambda right: right.clamp(min=0),
        lambda right: torch.full_like(right, float("nan")),
    ],
    ids=["scaled", "noise", "shifted", "zeros", "clamped", "nan"],
)
def test_other_errors_are_not_taken_for_rounding(mlp, wrong):
    inputs = mlp.draw(5)
    assert found(mlp, wrong(mlp.forward(inputs, 0)), inputs) is None


def test_honest_rounding_is_not_taken_for_less(mlp):
    inputs = mlp.draw(5)
    assert found(mlp, mlp.forward(inputs, 0), inputs) is None
    for order in SummationOrder:
        assert found(mlp, run(mlp, inputs, in_order(order)), inputs) is None


LONG = "x @ self.weight"
LONG_GIVEN = "torch.rand(96, {terms})"
LONG_INIT = "self.register_buffer('weight', torch.rand({terms}, 80))"


def long_sums(terms):
    return reference(LONG, LONG_GIVEN.format(terms=terms), LONG_INIT.format(terms=terms))


@pytest.mark.parametrize("terms", [4096, 16384])
@pytest.mark.parametrize("to", Format)
def test_rounding_is_found_where_long_sums_average_it_out(terms, to):
    made = long_sums(terms)
    inputs = made.draw(5)
    assert is_found(made, run(made, inputs, with_operands(to)), inputs, to)


def test_rounding_is_found_beside_what_sums_lose_and_where_one_operand_alone_is_rounded():
    made = long_sums(16384)
    inputs = made.draw(5)
    rounded_sum = run(made, inputs, with_operands(Format.TF32))
    assert is_found(made, rounded_sum * (1 - 5e-3), inputs, Format.TF32)  # Cut off at each step, say.
    one = rounded(inputs.args[0], Format.TF32) @ made.model.weight
    assert is_found(made, one, inputs, Format.TF32)


@pytest.mark.slow
def test_sums_in_another_order_are_not_taken_for_rounding_however_long():
    made = long_sums(1 << 16)
    inputs = made.draw(5)
    x, weight = inputs.args[0], made.model.weight
    in_turn = torch.zeros(96, 80)
    for start in range(0, 1 << 16, 256):
        in_turn += x[:, start : start + 256] @ weight[start : start + 256]
    assert not in_turn.equal(made.forward(inputs, 0))
    assert found(made, in_turn, inputs) is None
    assert found(made, in_turn * (1 + 2e-7), inputs) is None
    for order in SummationOrder:
        assert found(made, run(made, inputs, in_order(order)), inputs) is None


@pytest.mark.parametrize(
    ("output", "given"),
    [
        ("torch.relu(x)", "torch.randn(64, 64)"),
        ("x.t().contiguous()", "torch.randn(64, 64)"),
        ("torch.exp(x)", "torch.randn(64, 64)"),
        ("torch.softmax(x, -1)", "torch.randn(64, 512)"),
        ("x.cumsum(-1)", "torch.rand(64, 4096)"),
        pytest.param("x.mean(-1)", "torch.rand(4096, 2048)", marks=pytest.mark.slow),
        ("x @ x", "torch.randint(0, 64, (128, 128)).float()"),  # What TF32 holds exactly: no rounding at all.
        ("x @ x", "torch.randint(0, 3000, (128, 128)).float()"),
        ("x.half().to(x.dtype)", "torch.randn(64, 64)"),
        ("torch.floor(100 * x) / 100", "torch.randn(64, 64)"),
        ("torch.full_like(x, 1 / 3)", "torch.randn(64, 64)"),
        ("x.where(x > 0, float('inf'))", "torch.randn(64, 64)"),
    ],
)
def test_honest_answers_are_not_taken_for_rounding(output, given):
    made = reference(output, given)
    inputs = made.draw(5)
    right = made.forward(inputs, 0)
    exact = by_path(made.expected(inputs, 0, None).exact)["output"]
    for actual in (right, exact.float(), right * (1 + 1e-7), right * (1 - 2e-5)):
        assert found(made, actual, inputs) is None
    for order in SummationOrder:
        assert found(made, run(made, inputs, in_order(order)), inputs) is None


def test_a_reference_that_rounds_itself_blames_nobody():
    made = reference("rounded(x) @ rounded(x)", "torch.randn(64, 64)")
    made._file.namespace["rounded"] = lambda x: rounded(x, Format.TF32) if x.dtype == torch.float32 else x
    inputs = made.draw(5)
    assert made.expected(inputs, 0, None).in_float64
    low = made.forward(inputs, 0)
    assert found(made, low + 1e-7 * low.roll(1), inputs) is None


LOSS = "F.cross_entropy(x, x.argmin(-1))"


def losses(answer, made, count=ENOUGH_CALLS):
    """Ask about calls with one number each."""
    drawn = [made.draw(seed) for seed in range(count)]
    return named(*[asked(made, answer(inputs), inputs) for inputs in drawn])


@pytest.fixture(params=[(LOSS, "3 * torch.randn(512, 256)"), ("x.square().mean(0)", "torch.rand(4096, 7)")])
def loss(request):
    return reference(*request.param)


@pytest.mark.parametrize("to", [Format.TF32, Format.BF16, Format.FP16])
def test_rounding_is_found_in_a_few_numbers_of_many_calls(loss, to):
    def low(inputs):
        return loss.forward(inputs._replace(args=[rounded(inputs.args[0], to)]), 0)

    assert losses(low, loss) in ALIKE.get(to, {to})
    one = loss.draw(1)
    assert named(asked(loss, low(one), one)) is None
    assert losses(lambda inputs: loss.forward(inputs, 0), loss) is None


def test_other_errors_of_a_few_numbers_are_not_taken_for_rounding(loss):
    def at_random(size):
        generator = torch.Generator().manual_seed(3)

        def answer(inputs):
            right = loss.forward(inputs, 0)
            return right * (1 + size * torch.randn(right.shape, generator=generator))

        return answer

    # As large as the rounding of a format is here, smaller, and larger.
    for size in (1e-7, 1e-6, 1e-5, 1e-4):
        assert losses(at_random(size), loss, 2 * ENOUGH_CALLS) is None
    assert losses(lambda inputs: loss.forward(inputs, 0) * (1 + 1e-5), loss) is None
    for order in SummationOrder:
        assert losses(lambda inputs, order=order: run(loss, inputs, in_order(order)), loss) is None


def in_turn(values, sums):
    """Add the last dimension up in float32, one after the other; PyTorch's own sums are far better."""
    parts = values.reshape(*values.shape[:-1], sums, -1).contiguous().numpy()
    return torch.from_numpy(np.add.accumulate(parts, axis=-1, dtype=np.float32)[..., -1].copy()).sum(-1)


@pytest.mark.parametrize("pool", [20, 21, 35, 36, 52])
def test_a_call_that_is_larger_than_the_others_does_not_speak_for_them(pool):
    """Honest errors are as large as a rounding here. In these calls the largest has one that is like it, by chance."""
    made = reference("x.square().mean()", "torch.rand(256, 256) * torch.exp(3 * torch.randn(()))")

    def answer(inputs):
        return in_turn(inputs.args[0].square().flatten(), 4) / 256**2

    drawn = [made.draw(seed) for seed in range(ENOUGH_CALLS * pool, ENOUGH_CALLS * (pool + 1))]
    assert named(*[asked(made, answer(inputs), inputs) for inputs in drawn]) is None


@pytest.mark.parametrize("seed", [0, 27, 30, 34, 40])
def test_rows_that_are_larger_than_the_others_do_not_speak_for_them(seed):
    made = reference("x.square().mean(1)", "torch.rand(64, 65536) * torch.exp(2 * torch.randn(64, 1))")
    inputs = made.draw(seed)
    assert found(made, in_turn(inputs.args[0].square(), 4) / 65536, inputs) is None


def test_what_is_the_same_in_all_calls_says_nothing():
    made = reference("self.weight.square().sum(1) + 0 * x.sum()", "torch.rand(2, 2)", WEIGHTS)
    for to in Format:
        low = rounded(made.model.weight.detach(), to).square().sum(1)
        assert losses(lambda inputs, low=low: low, made, 2 * ENOUGH_CALLS) is None


WEIGHTS = "self.weight = nn.Parameter(torch.rand(3, 512))"


def test_far_smaller_errors_cost_few_calls_of_the_reference(loss):
    answers = [asked(loss, loss.forward(inputs, 0), inputs) for inputs in map(loss.draw, range(2 * ENOUGH_CALLS))]
    made_again = []

    def again(number):
        made_again.append(number)
        return answers[number].again()

    def nearly_exact(number, each):
        errors = each.outputs["output"]
        return CallErrors(functools.partial(again, number), {"output": errors._replace(actual=errors.exact + 1e-12)})

    assert named(*[nearly_exact(number, each) for number, each in enumerate(answers)]) is None
    # Of products there are none, in any format; other roundings are too large in the first.
    assert made_again == [0, 1, 2, 3] * (len(Format) + 2)


def test_outputs_that_differ_between_calls_are_not_put_together(loss):
    def answers(change):
        calls = [asked(loss, loss.forward(inputs, 0) + 1e-6, inputs) for inputs in map(loss.draw, range(ENOUGH_CALLS))]
        return [calls[0], calls[1]._replace(outputs=change(calls[1].outputs["output"])), *calls[2:]]

    longer = answers(lambda errors: {"output": Errors(*(torch.cat([side, side]) for side in errors))})
    assert format_of(longer) is None
    assert format_of(answers(lambda _: {})) is None
    assert format_of(answers(lambda errors: {"output": errors, "other": errors})) is None
    assert format_of([CallErrors(longer[0].again, {})]) is None


@pytest.mark.parametrize("short", ["with_operands", "with_results"])
def test_where_memory_runs_out_nobody_is_said_to_be_honest(mlp, monkeypatch, short):
    """Other ways of rounding are tried all the same: what they find is found."""

    def no_memory(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    inputs = mlp.draw(5)
    low, honest = run(mlp, inputs, with_operands(Format.BF16)), run(mlp, inputs, in_order(SummationOrder.REVERSED))
    monkeypatch.setattr(rounded_reference, short, no_memory)
    with pytest.raises(MemoryError, match=r"^TF32.*: CUDA out of memory|^bf16: CUDA out of memory"):
        found(mlp, honest, inputs)
    if short == "with_results":
        assert found(mlp, low, inputs) is Format.BF16
    assert found(mlp, mlp.forward(inputs, 0).half().float(), inputs) in ALIKE[Format.FP16]


def test_where_memory_runs_out_for_one_format_the_next_is_tried(mlp, monkeypatch):
    inputs = mlp.draw(5)
    low = run(mlp, inputs, with_operands(Format.BF16))

    def memory_for_bf16(to):
        if to is not Format.BF16:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return with_operands(to)

    monkeypatch.setattr(rounded_reference, "with_operands", memory_for_bf16)
    monkeypatch.setattr(reduced_precision, "WAYS", (rounded_reference.with_rounded_operands,))
    assert found(mlp, low, inputs) is Format.BF16


def test_where_memory_runs_out_for_large_outputs_small_ones_are_asked_about(monkeypatch):
    asked_about = []

    def no_memory_for_large(calls, _):
        asked_about.append(len(calls))
        if len(calls) == 1:
            raise MemoryError("2 GiB more")
        return found_in_small

    watch = PrecisionWatch(Precision.FP32)
    for seed in range(ENOUGH_CALLS):
        watch.begin(1)
        for path, size in (("output[0]", 1), ("output[1]", 64)):
            values = torch.rand(size)
            watch.add(0, path, Sides(values, values.double(), values), in_float64=True)
        watch.draw_lots(seed, cards.check())
    monkeypatch.setattr(precision_sampler, "format_of", no_memory_for_large)
    found_in_small = None
    with pytest.raises(MemoryError, match="2 GiB more"):
        watch.look_closely(lambda _: None)
    found_in_small = FormatMatch("output[0]", Format.TF32)
    assert watch.look_closely(lambda _: None).finding.details == {"path": "output[0]"}
    assert asked_about == [1, ENOUGH_CALLS] * 2


def test_what_only_a_size_shows_is_not_said_to_be_reduced_precision_alone(monkeypatch):
    """A lost factor before a norm had errors of the size of TF32's, in a published kernel without TF32."""
    watch = PrecisionWatch(Precision.FP32)
    watch.begin(1, {"output": [Slices(0, 64, (3,))]})
    values = torch.rand(64, 4)
    watch.add(0, "output", Sides(values, values.double(), values), in_float64=True)
    watch.draw_lots(1, cards.check())
    monkeypatch.setattr(precision_sampler, "format_of", lambda *_: None)
    monkeypatch.setattr(precision_sampler, "outsized", lambda *_: Outsized("output", Format.TF32, 1.7e-4, 2.2e-4, 2e-6))
    found = watch.look_closely(lambda _: None).finding
    assert "relative error is 1.7e-04 in secret rows" in found.message
    assert found.next_step == IN_FP32_OR_A_STEP


def test_a_wrong_answer_stays_one_without_the_memory_to_say_why(mlp, monkeypatch):
    def no_memory(*_):
        raise MemoryError

    inputs = mlp.draw(5)
    wrong = asked(mlp, run(mlp, inputs, with_operands(Format.BF16)), inputs)
    sample, call = ErrorSample(0, dict(wrong.outputs), in_float64=True), wrong.again()
    assert sample.lowered(call, "output").format is Format.BF16
    monkeypatch.setattr(precision_sampler, "format_of", no_memory)
    assert sample.lowered(call, "output") is None


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (RuntimeError("cuFFT error: CUFFT_ALLOC_FAILED"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
        (RuntimeError('"addmm_cuda" not implemented for Half'), False),
    ],
)
def test_memory_runs_out_under_many_names(error, why):
    assert ran_out(error) is why


def test_what_is_empty_or_not_fp32_is_not_sampled():
    assert sampled(*[torch.rand(0)] * 3) is None
    assert sampled(*[torch.rand(64).double()] * 3) is None
    assert sampled(*[torch.rand(64)] * 3) is not None
    assert sampled(*[torch.rand(())] * 3).exact.shape == (1,)


def test_places_of_a_large_output_are_drawn():
    values = torch.arange(1 << 17).float()
    one, other = (sampled(values, values.double(), values) for _ in range(2))
    assert len(one.places) == 1 << 16
    assert torch.equal(one.actual, one.places.double())
    assert not torch.equal(one.places, other.places)


def test_bf16_is_coarser_than_tf32_and_nothing_is_coarser_than_half_precision():
    assert coarser_than(Precision.TF32) == (Format.BF16,)
    assert coarser_than(Precision.BF16) == coarser_than(Precision.FP16) == ()


@pytest.mark.parametrize(("to", "seen"), [(Format.TF32, None), (Format.TF32_CUT, None), (Format.BF16, Format.BF16)])
def test_where_tf32_is_allowed_only_bf16_is_found(mlp, to, seen):
    inputs = mlp.draw(3)
    with with_operands(to):
        answer = by_path(mlp.altered(inputs, 0, None, contextlib.nullcontext()))["output"]
    result = format_of([asked(mlp, answer, inputs)], coarser_than(Precision.TF32))
    assert (None if result is None else result.format) is seen


@pytest.mark.parametrize("shape", [(), (7,), (5, 6), (3, 4, 5)])
def test_the_sample_does_not_depend_on_the_layout(shape):
    """Outputs with gaps, or with dimensions in another order, have the same elements at the same places."""
    sides = [torch.arange(float(torch.Size(shape).numel())).reshape(shape) * factor for factor in (1.0, 2.0, 3.0)]
    apart = [side.mT.contiguous().mT if side.dim() > 1 else torch.stack([side, side], -1)[..., 0] for side in sides]
    assert all(torch.equal(*pair) for pair in zip(sides, apart, strict=True))
    assert shape == () or not any(side.is_contiguous() for side in apart)
    one, other = sampled(*sides), sampled(*apart)
    assert all(torch.equal(*pair) for pair in zip(one, other, strict=True))
    assert torch.equal(one.actual, sides[0].reshape(-1).double())


def test_tf32_and_fp16_are_both_named_unless_the_values_tell():
    drawn = torch.randn(300, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    plain, half = (Errors(torch.arange(300), each, drawn, drawn) for each in (drawn, drawn.half().double()))
    for to in (Format.TF32, Format.FP16):
        found = FormatMatch("output", to)
        assert (found.name(plain), found.name(half), found.name(None)) == ("TF32 or fp16", "fp16", "TF32 or fp16")
    assert FormatMatch("output", Format.BF16).name(half) == "bf16"
    assert FormatMatch("output", Format.TF32_CUT).name(half) == "TF32, cut off"
