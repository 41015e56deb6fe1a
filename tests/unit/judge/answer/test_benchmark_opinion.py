"""The benchmark's rule on the judge's snapshots of a checked call, independent of the verdict."""

from types import SimpleNamespace

import pytest
import torch
from msgspec.structs import replace

from benchmarks.numerics.judged_answers import AnswerTrials, Setup
from evaluator.errors import ProblemError
from evaluator.judge.answer import benchmark_opinion
from evaluator.judge.answer.benchmark_opinion import benchmark_accepts
from evaluator.judge.compare.tensor_comparison import begin
from evaluator.judge.reference.cancelling_rows import Slices
from evaluator.judge.reference.reference import Honest, Reference
from evaluator.judge.setup.distribution_mix import AS_GIVEN_ALONE
from evaluator.judge.tensors.output_views import OutputViews
from evaluator.protocol.model_call import Result
from evaluator.records import BenchmarkRule, CheckRule, Profile, RowSite, SizeName, ToleranceRule
from tests.unit.references import problem, reference

ROUNDED = "((x + 1e4) - 1e4, x * 2)"
"""The reference itself rounds to steps of 1e-3."""
NAN = "torch.where(x > 0.5, x, torch.nan)"


def run(
    output, answer, given="torch.rand(32, 64)", rule=ToleranceRule.MEASURED, mix=AS_GIVEN_ALONE, index=0, asked=True
):
    made = reference(output, given)
    trials = AnswerTrials(Setup(made, mix, begin), lambda plan: Result(answer(plan.inputs.args[0]), None), rule)
    return trials.run(index, 7, timeout_s=60, second_opinion=asked)


CASES = {
    "a right answer": ("x * 2", lambda x: x * 2, True, True),
    "a constant bias": ("x * 2", lambda x: x * 2 + 9e-5, False, True),
    "more exact than the reference": (ROUNDED, lambda x: (x, x * 2), True, False),
    "a bias beyond both rules": ("x * 2", lambda x: x * 2 + 5e-3, False, False),
    "NaN of the reference": (NAN, lambda x: torch.where(x > 0.5, x, torch.nan), True, False),
    "an infinity of the reference": ("x / 0", lambda x: x / 0, True, True),
    "another index among large ones": (
        "(x.argsort(1) + 20000, x * 2)",
        lambda x: (x.argsort(1) + 20001, x * 2),
        False,
        True,
    ),
    "a boolean": ("x > 0.5", lambda x: x <= 0.5, False, False),
    "one of two outputs": ("(x * 2, x * 3)", lambda x: (x * 2, x * 3.1), False, False),
    "a number": ("(x * 2, x.mean().item())", lambda x: (x * 2, x.mean().item()), True, True),
    "no elements": ("(x * 2, x[:0])", lambda x: (x * 2, x[:0]), True, True),
}


@pytest.mark.parametrize(("output", "answer", "right", "opinion"), CASES.values(), ids=CASES)
def test_the_opinion_is_kernelbenchs_and_the_verdict_the_judges(output, answer, right, opinion):
    check = run(output, answer).check
    assert (check.ok, check.benchmark_ok) == (right, opinion)


def test_no_second_opinion_of_the_same_rule_nor_of_a_call_that_asks_for_none():
    def twice(x):
        return x * 2

    assert run("x * 2", twice, rule=ToleranceRule.KERNELBENCH).check.benchmark_ok is None
    assert run("x * 2", twice, asked=False).check.benchmark_ok is None


def test_secret_rows_do_not_count():
    """The answer is wrong in rows with a negative number or a small mean: the problem draws neither."""
    mix = AS_GIVEN_ALONE._replace(row_sites=(RowSite(0, 0, {"output": 0}),))
    given = "torch.rand(64, 256) / 2 + 0.5"

    def answer(x):
        return torch.where((x.amin(1, keepdim=True) < 0) | (x.mean(1, keepdim=True) < 0.5), x * 3, x * 2)

    check = run("x * 2", answer, given=given, mix=mix, index=1).check
    assert (check.ok, check.benchmark_ok) == (False, True)
    check = run("x * 2", lambda x: x * 3, given=given, mix=mix, index=1).check
    assert (check.ok, check.benchmark_ok) == (False, False)


def planned(parts, slices=None, profile=Profile.AS_GIVEN, rule=None):
    blocks = [Honest(Result(part, None), frozenset()) for part in parts]
    values = SimpleNamespace(
        values=lambda result: {"output": result.outputs},
        matched_ratio=rule,
        benchmark_check=None,
        problem=SimpleNamespace(benchmark=BenchmarkRule.SOL_EXECBENCH),
    )
    return SimpleNamespace(profile=profile, honest=lambda: iter(blocks), slices=slices or {}, reference=values)


def accepts(plan, tensor):
    return benchmark_accepts(plan, [OutputViews("output", tensor, tensor, (0, 0))], is_right=True)


def test_an_output_in_blocks_is_compared_with_the_block_of_its_rows():
    whole = torch.arange(60.0).reshape(10, 6)
    assert accepts(planned(whole.split(4)), whole) is True
    wrong = whole.clone()
    wrong[9, 2] += 1
    assert accepts(planned(whole.split(4)), wrong) is False
    for dim, index, opinion in ((0, 9, True), (0, 1, False), (1, 2, True), (1, 3, False)):
        slices = {"output": [Slices(dim, whole.shape[dim], [index])]}
        assert accepts(planned(whole.split(4), slices), wrong) is opinion
    assert accepts(planned([whole], profile=Profile.LARGE), wrong) is None


@pytest.mark.parametrize("error", [RuntimeError("unsupported"), MemoryError(), torch.OutOfMemoryError("out of memory")])
def test_a_failure_of_the_opinion_is_no_failure_of_the_grade(monkeypatch, error):
    def failing(*_):
        raise error

    monkeypatch.setattr(benchmark_opinion, "all_agree", failing)
    check = run("x * 2", lambda x: x * 2).check
    assert (check.ok, check.benchmark_ok) == (True, None)


CHECK = """
def check(inputs, outputs):
    return None if (outputs - inputs[0] * 2).abs().max() < 0.1 else "too far"
"""
RATIO = {"max_atol": 1e-3, "max_rtol": 0.0, "required_matched_ratio": 0.9}


def verdict(answer, benchmark, rule=ToleranceRule.BENCHMARK, check=None):
    """Return the check of a call of a problem of `benchmark`, by its rule alone."""
    made = problem("x * 2", check=check, benchmark=benchmark)
    case = replace(made.cases[SizeName.SMALL], tolerance=RATIO)
    made = replace(made, source=made.source + CHECK, cases={case.name: case})
    setup = Setup(Reference(made, SizeName.SMALL, 1), AS_GIVEN_ALONE, begin)
    trials = AnswerTrials(setup, lambda plan: Result(answer(plan.inputs.args[0]), None), rule)
    return trials.run(0, 7, timeout_s=60, second_opinion=True).check


def few_wrong(x):
    answer = x * 2
    answer[:3] += 1
    return answer


VERDICTS = {
    "KernelBench: near": (BenchmarkRule.KERNELBENCH, lambda x: x * 2 + 9e-5, True, ""),
    "KernelBench: far": (BenchmarkRule.KERNELBENCH, lambda x: x * 2 + 9e-2, False, "values differ"),
    "matched ratio: few are far": (BenchmarkRule.SOL_EXECBENCH, few_wrong, True, ""),
    "matched ratio: all are far": (
        BenchmarkRule.SOL_EXECBENCH,
        lambda x: x * 2 + 9e-2,
        False,
        "output: 2048 of 2048 values differ, more than 0.1 of all (SOL-ExecBench's rule)",
    ),
    "matched ratio: zeros": (BenchmarkRule.ATREX, torch.zeros_like, False, "output: zeros alone (Atrex's rule)"),
    "matched ratio: NaN": (BenchmarkRule.FLASHINFER_BENCH, lambda x: x / 0 * 0, False, "output: NaN or infinities"),
    "a task's check: near": (BenchmarkRule.KERNELBOT, lambda x: x * 2 + 9e-2, True, ""),
    "a task's check: far": (BenchmarkRule.KERNELBOT, few_wrong, False, "too far"),
}


@pytest.mark.parametrize(("benchmark", "answer", "right", "words"), VERDICTS.values(), ids=VERDICTS)
def test_the_benchmarks_rule_decides_where_the_grade_asks_for_it(benchmark, answer, right, words):
    check = verdict(answer, benchmark)
    assert (check.ok, check.benchmark_ok) == (right, None)
    assert right or words in check.finding.message
    opinion = verdict(answer, benchmark, ToleranceRule.MEASURED)
    assert (opinion.ok, opinion.benchmark_ok) == (False, right)


def test_a_check_beside_the_comparison_decides_alone():
    beside = verdict(lambda x: x * 2 + 9e-2, BenchmarkRule.CHECK, check=CheckRule.BESIDE)
    assert (beside.ok, beside.tensors) == (True, [])


def test_a_check_that_refuses_the_reference_decides_nothing():
    def refusing(*_):
        return "never"

    made = Reference(
        problem("x * 2", benchmark=BenchmarkRule.KERNELBOT, source=problem("x * 2").source + CHECK), "small", 1
    )
    made.benchmark_check = refusing
    setup = Setup(made, AS_GIVEN_ALONE, begin)
    for rule in ToleranceRule.MEASURED, ToleranceRule.BENCHMARK:
        trials = AnswerTrials(setup, lambda plan: Result(plan.inputs.args[0] * 2, None), rule)
        if rule is ToleranceRule.MEASURED:
            assert trials.run(0, 7, timeout_s=60, second_opinion=True).check.benchmark_ok is None
        else:
            with pytest.raises(ProblemError, match="check refuses the answer of Model itself: never"):
                trials.run(0, 7, timeout_s=60)
