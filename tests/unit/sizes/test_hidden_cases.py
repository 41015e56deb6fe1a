"""Shapes that a grade draws, and those of a replayed card."""

import random

import pytest
from msgspec.structs import replace

from evaluator.catalog import find_problem
from evaluator.errors import CardError
from evaluator.records import AxisRange, CaseResult, SizeName, Status, cases_of
from evaluator.sizes.cases import chosen_cases, drawn_cases, missing_case, replayed_cases

SIZES = {"full": {"n": 4096, "d": 64, "eps": 0.5}, "small": {"n": 64, "d": 16, "eps": 0.5}}


@pytest.fixture
def problem():
    relu = find_problem("relu")
    return replace(relu, cases=cases_of(SIZES), hidden={"n": AxisRange(1, 5000), "d": AxisRange(8, 64, 8)})


def test_they_lie_in_the_ranges_and_near_the_graded_cases(problem):
    graded = [problem.cases[SizeName.SMALL]]
    for seed in range(200):
        cases = drawn_cases(problem, graded, random.Random(seed))
        assert [each.name for each in cases] == ["hidden_1", "hidden_2", "hidden_3", "hidden_4"]
        for each in cases:
            assert 1 <= each.axes["n"] <= 65
            assert each.axes["d"] in (8, 16)
            assert each.axes["eps"] == 0.5
            assert each.axes not in SIZES.values()
        assert abs(cases[1].axes["n"] - 64) == 1
        assert cases[3].axes["n"] % 16 == 8


def test_a_case_s_own_shape_is_never_drawn_and_few_shapes_give_few_cases(problem):
    narrow = replace(problem, hidden={"n": AxisRange(64, 65)})
    drawn = drawn_cases(narrow, [problem.cases[SizeName.SMALL]], random.Random(1))
    assert [each.axes["n"] for each in drawn] == [65]


def test_those_of_a_card_are_refused_outside_of_the_ranges(problem):
    graded = [problem.cases[SizeName.SMALL]]

    def replayed(**axes):
        made = {"n": 63, "d": 8, "eps": 0.5} | axes
        results = [CaseResult("hidden_1", made, 1.0, Status.CORRECT, hidden=True)]
        return [each.axes for each in replayed_cases(problem, graded, results)]

    assert replayed() == [{"n": 63, "d": 8, "eps": 0.5}]
    for axes in ({"n": 1 << 40}, {"n": True}, {"n": "63"}, {"d": 9}, {"eps": 1e-9}, {"more": 1}):
        with pytest.raises(CardError, match="outside of the ranges"):
            replayed(**axes)


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ((), ("small", "awkward")),
        (("full", "small", "full"), ("full", "small")),
        (("all",), ("decode", "prefill")),
        (("hidden",), ("small",)),
        (("prefill", "hidden"), ("prefill",)),
    ],
)
def test_words_name_cases(problem, words, names):
    listed = cases_of(SIZES | {"awkward": SIZES["small"], "decode": SIZES["small"], "prefill": SIZES["small"]})
    assert chosen_cases(replace(problem, cases=listed), ("small", "awkward"), words) == names


def test_without_a_workload_all_are_the_sizes(problem):
    assert chosen_cases(problem, ("small",), ("all",)) == ("full", "small")
    assert missing_case(problem, ("small",), ("decode",)) == "decode"
    assert missing_case(replace(problem, hidden={}), ("small",), ("hidden",)) == "hidden"
    assert missing_case(problem, ("small",), ("hidden",)) is None
