"""Two runs beside each other: what counts as worse, and what chance explains."""

import io

import pytest
from rich.console import Console

from evaluator.errors import UsageError
from evaluator.records import Status
from evaluator.report.run.run_comparison import ComparedSubmission, Rule, VerdictChange, compare, failures, parse_rule
from evaluator.report.run.several_runs import render_comparison


def run(*speedups, problem="relu", noise=0.01, status=Status.CORRECT):
    return [
        ComparedSubmission(
            problem, f"s{number}", status, speedup, speedup and speedup * (1 - noise), speedup and speedup * (1 + noise)
        )
        for number, speedup in enumerate(speedups)
    ]


SPEEDUP, CORRECT, STATUS = (parse_rule(rule) for rule in ("speedup:-5%", "correct:-10%", "status"))


def test_a_clear_fall_fails():
    comparison = compare(run(2.0, 3.0, 1.5), run(1.8, 2.7, 1.35))
    assert comparison.faster.value == pytest.approx(0.9)
    assert failures(comparison, [SPEEDUP]) == ["the speedup fell by 10.0 % over 3 submissions"]


def test_a_fall_within_the_limit_passes():
    assert failures(compare(run(2.0, 3.0, 1.5), run(1.96, 2.94, 1.47)), [SPEEDUP]) == []


def test_a_rise_passes():
    assert failures(compare(run(2.0, 3.0), run(4.0, 6.0)), [SPEEDUP, STATUS, CORRECT]) == []


def test_a_fall_that_the_clock_explains_passes():
    assert failures(compare(run(2.0, noise=0.2), run(1.8, noise=0.2)), [SPEEDUP]) == []
    assert failures(compare(run(2.0, noise=0.01), run(1.8, noise=0.01)), [SPEEDUP]) != []


def test_a_fall_that_the_scatter_explains_passes():
    after = run(0.5, 4.5, 1.5)
    comparison = compare(run(2.0, 2.0, 2.0), after)
    assert comparison.faster.value < 0.95
    assert comparison.faster.high > 1
    assert failures(comparison, [SPEEDUP]) == []


def test_one_pair_without_an_interval_proves_nothing():
    comparison = compare(
        [ComparedSubmission("a", "x", Status.CORRECT, 2.0)], [ComparedSubmission("a", "x", Status.CORRECT, 1.0)]
    )
    assert comparison.faster.value == 0.5
    assert comparison.faster.high is None
    assert failures(comparison, [SPEEDUP]) == []


def test_a_gate_for_which_nothing_was_measured_is_not_passed():
    assert failures(compare(run(2.0), run(2.0, problem="gelu")), [SPEEDUP, CORRECT]) == [
        "no submission has a speedup in both runs, so speed cannot be compared",
        "the runs share no submission, so the correct share cannot be compared",
    ]


def test_wrong_ones_are_not_timed_and_missing_ones_are_broken():
    before = [
        *run(2.0, 2.0),
        ComparedSubmission("a", "gone", Status.CORRECT, 1.0),
        ComparedSubmission("a", "new", None),
    ]
    after = [
        *run(2.0),
        ComparedSubmission("relu", "s1", Status.WRONG_RESULT),
        ComparedSubmission("a", "gone", None),
        ComparedSubmission("a", "new", Status.CORRECT),
    ]
    comparison = compare(before, after)
    assert comparison.timed == 1
    assert {pair.before.name for pair in comparison.broken} == {"s1", "gone"}
    assert {pair.before.name for pair in comparison.mended} == {"new"}
    assert failures(comparison, [STATUS]) == ["correct in RUN_A and not in RUN_B: 2"]


def test_what_one_run_lacks_is_named_and_not_compared():
    comparison = compare(run(2.0, 3.0), run(2.0))
    assert [each.name for each in comparison.only_before] == ["s1"]
    assert len(comparison.pairs) == 1


def test_a_share_falls_beyond_chance():
    before = run(*[1.0] * 10)
    wrong = [each._replace(status=Status.WRONG_RESULT) for each in before]
    assert failures(compare(before, [*wrong[:2], *before[2:]]), [CORRECT]) == []  # p = 0.25
    assert failures(compare(before, [*wrong[:5], *before[5:]]), [CORRECT]) == [
        "the correct share fell by 50.0 points (p = 0.031)"
    ]


def shown(before, after):
    drawn = io.StringIO()
    render_comparison(compare(before, after), [], Console(file=drawn, width=80))
    return drawn.getvalue().splitlines()


def test_without_speedups_verdicts_are_compared_all_the_same():
    untimed = [ComparedSubmission("a", name, Status.CORRECT) for name in "xy"]
    missing = ComparedSubmission("a", "z", None)
    assert shown([*untimed, missing], [*untimed, missing]) == [
        "3 submissions in both runs",
        "same verdict: 2 of 3",
        "speed: no submission has a speedup in both runs",
    ]
    assert shown([], []) == [
        "0 submissions in both runs",
        "speed: no submission has a speedup in both runs",
    ]


def test_what_broke_is_told_with_both_verdicts():
    right = [ComparedSubmission("a", name, Status.CORRECT) for name in "xy"]
    wrong = [ComparedSubmission("a", "x", Status.WRONG_RESULT), ComparedSubmission("a", "y", None)]
    assert shown(right, wrong)[-2:] == [
        "broken: a/x: correct before, wrong_result now",
        "broken: a/y: correct before, missing now",
    ]
    assert shown(wrong, right)[-1] == "fixed: a/y: missing before, correct now"


@pytest.mark.parametrize(
    "text", ["", "speed:-5%", "speedup:5%", "speedup:-5", "speedup:-100%", "speedup:-x%", "Status"]
)
def test_a_rule_that_says_nothing_is_refused(text):
    with pytest.raises(UsageError, match="not a rule for --fail-on"):
        parse_rule(text)


def test_a_rule():
    assert parse_rule("correct:-2.5%") == Rule("correct", 2.5)


def one(status=Status.CORRECT, speedup=None, noise=0.01):
    return run(speedup, status=status, noise=noise)[0]


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        (one(), one(Status.WRONG_RESULT), VerdictChange.BROKEN),
        (one(), one(None), VerdictChange.BROKEN),
        (one(Status.WRONG_RESULT), one(), VerdictChange.FIXED),
        (one(Status.WRONG_RESULT), one(Status.BUILD_ERROR), VerdictChange.OTHER),
        (one(Status.WRONG_RESULT), one(Status.WRONG_RESULT), VerdictChange.SAME),
        (one(speedup=2.0), one(speedup=1.8), VerdictChange.SLOWER),
        (one(speedup=2.0), one(speedup=2.2), VerdictChange.FASTER),
        (one(speedup=2.0, noise=0.2), one(speedup=2.2, noise=0.2), VerdictChange.SAME),
        (one(speedup=2.0), one(), VerdictChange.SAME),
        (ComparedSubmission("relu", "s0", Status.CORRECT, 2.0), one(speedup=9.0), VerdictChange.SAME),
    ],
)
def test_the_change_of_a_submission(before, after, change):
    (pair,) = compare([before], [after]).pairs
    assert pair.change is change
