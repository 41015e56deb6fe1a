"""The benchmark's rule on the judge's snapshots of a checked call, independent of the verdict."""

from types import SimpleNamespace

import pytest
import torch

from benchmarks.numerics.judged_answers import AnswerTrials, Setup
from evaluator.judge.answer import benchmark_opinion
from evaluator.judge.answer.answer_judge import Judged
from evaluator.judge.answer.benchmark_opinion import benchmark_accepts
from evaluator.judge.compare.tensor_comparison import begin
from evaluator.judge.reference.cancelling_rows import Slices
from evaluator.judge.reference.reference import Honest
from evaluator.judge.setup.distribution_mix import AS_GIVEN_ALONE
from evaluator.judge.tensors.output_views import OutputViews
from evaluator.protocol.model_call import Result
from evaluator.records import MatchedRatio, Profile, RowSite, ToleranceRule
from tests.unit.references import reference

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
    values = SimpleNamespace(values=lambda result: {"output": result.outputs}, matched_ratio=rule)
    return SimpleNamespace(profile=profile, honest=lambda: iter(blocks), slices=slices or {}, reference=values)


def looked(tensor):
    return Judged(snapshots=[OutputViews("output", tensor, tensor, (0, 0))])


def test_an_output_in_blocks_is_compared_with_the_block_of_its_rows():
    whole = torch.arange(60.0).reshape(10, 6)
    assert benchmark_accepts(planned(whole.split(4)), looked(whole)) is True
    wrong = whole.clone()
    wrong[9, 2] += 1
    assert benchmark_accepts(planned(whole.split(4)), looked(wrong)) is False
    for dim, index, opinion in ((0, 9, True), (0, 1, False), (1, 2, True), (1, 3, False)):
        slices = {"output": [Slices(dim, whole.shape[dim], [index])]}
        assert benchmark_accepts(planned(whole.split(4), slices), looked(wrong)) is opinion
    assert benchmark_accepts(planned([whole], profile=Profile.LARGE), looked(wrong)) is None


def test_a_share_of_an_output_in_blocks_is_of_the_whole():
    whole = torch.arange(60.0).reshape(10, 6)
    wrong = whole.clone()
    wrong[8:, 2] += 1
    for share, opinion in ((0.96, True), (0.97, False)):
        plan = planned(whole.split(4), rule=MatchedRatio(max_rtol=0.0, required_matched_ratio=share))
        assert benchmark_accepts(plan, looked(wrong)) is opinion


@pytest.mark.parametrize("error", [RuntimeError("unsupported"), MemoryError(), torch.OutOfMemoryError("out of memory")])
def test_a_failure_of_the_opinion_is_no_failure_of_the_grade(monkeypatch, error):
    def failing(*_):
        raise error

    monkeypatch.setattr(benchmark_opinion, "all_agree", failing)
    check = run("x * 2", lambda x: x * 2).check
    assert (check.ok, check.benchmark_ok) == (True, None)
