"""Causes of wrong answers: known forms of a reference, each told from the others."""

import copy
import functools
import re

import pytest
import torch

from evaluator.judge.answer import cause
from evaluator.judge.answer.cause import cause_of
from evaluator.judge.compare.tensor_comparison import Sides, compare
from evaluator.judge.compare.tolerance import bounds
from evaluator.judge.reference import agreement
from evaluator.judge.reference.call_plan import CallPlan
from evaluator.judge.reference.reference import Reference, by_path
from evaluator.records import Mode, Precision, ToleranceRule
from tests.unit.references import problem, reference

LIMITS = bounds(ToleranceRule.MEASURED, problem("x", "x"), torch.float32)
LINEAR = "self.linear = nn.Linear(64, 32)"
NORM = "self.norm = nn.LayerNorm(64); nn.init.uniform_(self.norm.weight); nn.init.uniform_(self.norm.bias)"
SMALL = "torch.randn(32, 64) * 0.01"


def clause_of(made, answer):
    """Return the cause of `answer`, made from the input."""
    plan = CallPlan(made, 5)
    with torch.no_grad():
        actual = answer(plan.inputs.args[0])
    expected = made.expected(plan.inputs, plan.random_seed, None)
    exact, honest = by_path(expected.exact)["output"], by_path(expected.honest)["output"]
    check = compare("output", Sides(actual, exact, honest), LIMITS)
    assert not check.ok
    found = cause_of(plan, check, actual, LIMITS)
    return None if found is None else found.clause


F = torch.nn.functional
FORMS = [
    ("F.gelu(x)", "pass", lambda made, x: F.gelu(x, approximate="tanh"), "with GELU's other form"),
    ("F.gelu(x, approximate='tanh')", "pass", lambda made, x: F.gelu(x), "with GELU's other form"),
    ("F.gelu(x)", "pass", lambda made, x: x * torch.sigmoid(1.702 * x), "with x * sigmoid(1.702 * x) in place of GELU"),
    (
        "torch.sigmoid(F.gelu(self.linear(x)))",
        LINEAR,
        lambda made, x: torch.sigmoid((y := made.model.linear(x)) * torch.sigmoid(1.702 * y)),
        "with x * sigmoid(1.702 * x) in place of GELU",
    ),
    ("x.var(1)", "pass", lambda made, x: x.var(1, correction=0), "with the variance's other divisor"),
    ("x.std(1, correction=0)", "pass", lambda made, x: x.std(1), "with the variance's other divisor"),
    ("torch.softmax(x, 1)", "pass", lambda made, x: torch.softmax(x, 0), "with its softmax along the next dimension"),
    ("x.mean(1)", "pass", lambda made, x: x.sum(1), "with a sum in place of its mean"),
    ("torch.relu(self.linear(x))", LINEAR, lambda made, x: made.model.linear(x), "without relu"),
    (
        "self.linear(x)",
        LINEAR,
        lambda made, x: x @ made.model.linear.weight.T,
        "with 0 in place of the parameter linear.bias",
    ),
    (
        "self.linear(x)",
        LINEAR,
        lambda made, x: F.linear(x, made.model.linear.weight.reshape(64, 32).t(), made.model.linear.bias),
        "with linear.weight read in the order of its transpose",
    ),
    (
        "self.norm(x)",
        NORM,
        lambda made, x: F.layer_norm(x, (64,), None, made.model.norm.bias),
        "with 1 in place of the parameter norm.weight",
    ),
    (
        "F.avg_pool2d(x[None], 3, 1, 1)",
        "pass",
        lambda made, x: F.avg_pool2d(x[None], 3, 1, 1, count_include_pad=False),
        "with padding counted the other way",
    ),
    ("x * 2 + 1", "pass", lambda made, x: x + 1, "without mul"),
    ("x * F.hardswish(x)", "pass", lambda made, x: F.hardswish(x), "with the second operand of mul alone"),
    ("x * (x > 0)", "pass", lambda made, x: (x > 0).float(), "with the second operand of mul alone"),
    ("1 / torch.relu(x)", "pass", lambda made, x: 1 / x, "without relu"),
    ("torch.log(torch.relu(x))", "pass", lambda made, x: torch.log(x), "without relu"),
]


@pytest.mark.parametrize(("output", "init", "answer", "clause"), FORMS)
def test_a_known_form_is_named(output, init, answer, clause):
    made = reference(output, "torch.randn(32, 64)", init)
    found = clause_of(made, lambda x: answer(made, x))
    assert found.startswith(f"the values are those of the reference {clause}")


@pytest.mark.parametrize(
    ("output", "init", "answer", "clause"),
    [
        ("self.linear(x) / 2", LINEAR, lambda made, x: made.model.linear(x), "without div"),
        ("F.gelu(x)", "pass", lambda made, x: x * torch.sigmoid(1.702 * x), "with x * sigmoid(1.702 * x) in place"),
    ],
)
def test_a_form_in_half_precision_is_named_with_the_errors_beside_it(output, init, answer, clause):
    made = reference(output, "torch.randn(32, 64)", init)
    found = clause_of(made, lambda x: answer(made, x).half().float())
    assert found.startswith(f"the values are those of the reference {clause}")
    assert re.search(", but for errors of up to about [1-5]e-04 of their size$", found)


def test_one_large_row_does_not_make_a_form_of_the_others():
    """Root mean squares over the whole output are those of its largest row."""
    made = reference("self.linear(x) / 2", "torch.cat([torch.randn(1, 64) * 10_000, torch.randn(31, 64)])", LINEAR)

    def answer(x):
        values = made.model.linear(x)
        values[1:] = torch.randn(31, 32, generator=torch.Generator().manual_seed(1))
        return values

    found = clause_of(made, answer)
    assert found is None or "without div" not in found


def test_a_form_beside_errors_beyond_half_precision_is_not_named():
    made = reference("self.linear(x) / 2", "torch.randn(32, 64)", LINEAR)
    noise = 1 + 0.02 * torch.rand(32, 32, generator=torch.Generator().manual_seed(1))
    assert clause_of(made, lambda x: made.model.linear(x) * noise) is None


def test_a_problem_in_fewer_bits_than_fp32_is_not_told_to_compute_in_fp32():
    noise = 1 + 0.02 * torch.rand(32, 32, generator=torch.Generator().manual_seed(1))
    for precision, clause in ((Precision.FP32, "the wrong values are bf16 numbers"), (Precision.BF16, None)):
        made = reference("self.linear(x)", "torch.randn(32, 64)", LINEAR, precision=precision)
        assert clause_of(made, lambda x, made=made: (made.model.linear(x) * noise).bfloat16().float()) == clause


def test_values_far_from_the_expected_ones_are_not_explained_by_their_format():
    made = reference("self.linear(x)", "torch.randn(32, 64)", LINEAR)
    assert (
        clause_of(made, lambda x: torch.randn(32, 32, generator=torch.Generator().manual_seed(1)).half().float())
        is None
    )


def test_only_the_wrong_values_count():
    """Half of the columns are in fp16 and wrong; the rest is right in fp32."""
    made = reference("self.linear(x)", "torch.randn(32, 64)", LINEAR)
    noise = 1 + 0.02 * torch.rand(32, 32, generator=torch.Generator().manual_seed(1))

    def answer(x):
        values = made.model.linear(x)
        values[:, ::2] = (values * noise).half().float()[:, ::2]
        return values

    assert clause_of(made, answer) == "the wrong values are fp16 numbers"


def test_a_norm_without_its_epsilon():
    made = reference("self.norm(x)", SMALL, NORM)
    found = clause_of(made, lambda x: F.layer_norm(x, (64,), made.model.norm.weight, made.model.norm.bias, 0.0))
    assert found == "the values are those of the reference with an epsilon of 0 in its norm"


def test_a_form_that_explains_only_a_part_of_the_errors_is_no_cause():
    """The epsilon makes 3e-5 of these values; the answer is off by 4.5e-5: large values are beyond the tolerance."""
    made = reference("self.norm(x)", "torch.randn(32, 64) * 0.41", NORM)

    def off(x):
        return F.layer_norm(x, (64,), made.model.norm.weight, None, 0.0) * 1.000015 + made.model.norm.bias

    assert clause_of(made, off) is None


@pytest.mark.parametrize("mode", [Mode.TRAIN, Mode.EVAL])
def test_a_batch_norm_by_running_statistics(mode):
    init = "self.norm = nn.BatchNorm1d(64); self.linear = nn.Linear(64, 64)"
    made = reference("self.norm(self.linear(x))", "torch.randn(32, 64)", init, mode=mode)
    made.forward(made.draw(1), 0)
    own = copy.deepcopy(made.model)
    own.load_state_dict(made.state())
    made.forward(made.draw(2), 0)
    found = clause_of(made, own.train(mode is Mode.EVAL))
    clause = (
        "the values are those of the reference with its batch norm by running statistics, and not by those of the batch"
    )
    assert (found == clause) is (mode is Mode.TRAIN)


@pytest.mark.parametrize("layer", ["nn.BatchNorm1d(64)", "nn.utils.spectral_norm(nn.Linear(64, 64))"])
def test_forms_leave_the_reference_as_it_was(layer):
    made = reference("self.layer(x)", "torch.rand(32, 64)", f"self.layer = {layer}", mode=Mode.TRAIN)
    plan = CallPlan(made, 5)
    expected = made.expected(plan.inputs, plan.random_seed, None)
    actual = torch.zeros(32, 64)
    sides = Sides(actual, *(by_path(each)["output"] for each in (expected.exact, expected.honest)))
    models = {"plain": made.model, "exact": made.exact_model}
    before = {name: copy.deepcopy(model.state_dict()) for name, model in models.items()}
    cause_of(plan, compare("output", sides, LIMITS), actual, LIMITS)
    for name, model in models.items():
        assert all(torch.equal(before[name][key], value) for key, value in model.state_dict().items())


def test_a_reference_that_reads_by_index_has_no_forms():
    """Without the clamp, it would read outside of its table."""
    table = "self.table = nn.Parameter(torch.randn(8, 4))"
    made = reference("self.table[(x * 40).clamp(0, 7).long()]", "torch.rand(32)", table)
    assert clause_of(made, lambda x: torch.rand(32, 4)) is None


def test_any_other_wrong_answer_has_a_pattern_or_nothing():
    made = reference("torch.relu(x)", "torch.randn(32, 64)")
    assert clause_of(made, lambda x: torch.relu(x) * 3) == "the wrong values are 3 times the expected values"
    assert clause_of(made, lambda x: torch.relu(x) + torch.rand(32, 64)) is None


def test_what_would_take_long_is_not_tried(monkeypatch):
    made = reference("torch.relu(x)", "torch.randn(32, 64)")
    assert clause_of(made, torch.clone) == "the values are those of the reference without relu"
    monkeypatch.setattr(cause, "_LONGEST_S", 0.0)
    assert clause_of(made, torch.clone) is None


@pytest.fixture
def blocks(monkeypatch):
    """Make outputs of more than 640 elements large; the rows of each forward in float64 are noted."""
    monkeypatch.setattr(cause, "_MOST_ELEMENTS", 640)
    monkeypatch.setattr(agreement, "_BLOCK_BYTES", 640 * 8)
    computed, altered = set(), Reference.altered

    def noted(made, inputs, *given, **options):
        computed.add(len(inputs.args[0]))
        return altered(made, inputs, *given, **options)

    monkeypatch.setattr(Reference, "altered", noted)
    return computed


@pytest.mark.parametrize("row", [1, 26])
@pytest.mark.parametrize(
    ("output", "split", "rows"),
    [
        ("torch.relu(x) * 2 + 1", {}, {8}),
        ("torch.relu(x) * 2 + 1", {"x": 0}, {8}),
        ("torch.relu(x) * 2 + x.mean()", {}, {32}),
        ("torch.relu(x) * 2 + x.mean(0) / 100", {}, {32}),
    ],
    ids=["independent rows", "blocks of the author's split", "a mean over all rows", "rows that hardly depend"],
)
def test_rows_of_a_large_output_are_computed_alone_where_they_are_independent(blocks, output, split, rows, row):
    made = reference(output, "torch.randn(32, 64)", split=split)
    wrong = reference(output.replace("torch.relu(x)", "x"))
    answer = clause_of(made, lambda x: torch.cat([made.model(x)[:row], wrong.model(x)[row:]]))
    assert answer == "the values are those of the reference without relu"
    assert blocks == rows


SOFTMAX = "the values are those of the reference with its softmax along the next dimension"


@pytest.mark.parametrize("output", ["torch.softmax(x, 1)", "torch.log_softmax(x, 1)"])
def test_a_form_that_mixes_rows_is_tried_on_the_whole_call(blocks, output):
    made = reference(output, "torch.randn(32, 64)")
    softmax = torch.log_softmax if "log" in output else torch.softmax
    assert clause_of(made, lambda x: softmax(x, 0)) == SOFTMAX
    assert blocks == {8, 32}


def test_a_softmax_over_the_only_row_of_a_block_is_no_cause(blocks):
    made = reference("torch.log_softmax(x, 1)", "torch.randn(4, 640)")
    assert clause_of(made, torch.zeros_like) is None
    assert 1 in blocks


def test_a_batch_norm_in_training_is_not_cut(blocks):
    made = reference("torch.relu(self.norm(x))", "torch.randn(32, 64)", "self.norm = nn.BatchNorm1d(64)")
    made.state()
    assert clause_of(made, lambda x: F.batch_norm(x, None, None, training=True)).endswith("without relu")
    assert blocks == {32}


@pytest.mark.parametrize("init", ["self.lock = __import__('threading').Lock()", "self.w = nn.Parameter(x_) * 2"])
def test_a_model_that_cannot_be_copied_has_no_cause(init):
    made = reference("torch.relu(x)", "torch.randn(32, 64)", init.replace("x_", "torch.ones(3)"))
    assert clause_of(made, lambda x: torch.relu(x) * 3) is None


def test_a_forward_without_python_code_is_cut_by_the_number_of_its_argument(blocks):
    made = reference("torch.relu(x)", "torch.randn(32, 64)")
    type(made.model).forward = functools.lru_cache(type(made.model).forward)
    assert clause_of(made, torch.clone) == "the values are those of the reference without relu"
    assert blocks == {8}


def test_exhausted_memory_finds_no_cause(monkeypatch):
    def too_large(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(cause, "wrong_elements", too_large)
    assert clause_of(reference("torch.relu(x)", "torch.randn(32, 64)"), torch.clone) is None
