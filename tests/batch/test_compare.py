"""Comparison of two runs: what counts as worse, and what chance explains."""

import io

import pytest
from rich.console import Console

from evaluator.errors import UsageError
from evaluator.records import Status
from evaluator.report.run.run_comparison import Rule, VerdictChange, compare, failures, parse_rule
from evaluator.report.run.several_runs import comparison_document, render_comparison
from evaluator.report.run.summary import CaseSample
from tests.batch.samples import sample

SPEEDUP, CORRECT, STATUS = (parse_rule(rule) for rule in ("speedup:-5%", "correct:-10%", "status"))
WRONG = Status.WRONG_RESULT


def run(*speedups, problem="relu", noise=0.01):
    return [sample(f"s{number}", speedup, problem=problem, noise=noise) for number, speedup in enumerate(speedups)]


@pytest.mark.parametrize(
    ("before", "after", "failed"),
    [
        (run(2.0, 3.0, 1.5), run(1.8, 2.7, 1.35), ["the speedup fell by 10.0 % over 3 submissions"]),
        (run(2.0, 3.0, 1.5), run(1.96, 2.94, 1.47), []),  # within the limit
        (run(2.0, 3.0), run(4.0, 6.0), []),
        (run(2.0, noise=0.2), run(1.8, noise=0.2), []),  # explained by the clock
        (run(2.0), run(1.8), ["the speedup fell by 10.0 % over 1 submissions"]),
        (run(2.0, 2.0, 2.0), run(0.5, 4.5, 1.5), []),  # explained by the scatter: 0.95 of the speed
        (run(2.0, noise=None), run(1.0, noise=None), []),  # one pair without an interval
    ],
)
def test_a_certain_fall_of_the_speedup_fails(before, after, failed):
    assert failures(compare(before, after), [SPEEDUP, STATUS, CORRECT]) == failed


def test_a_gate_without_measurements_fails():
    comparison = compare(run(2.0), run(2.0, problem="gelu"))
    assert failures(comparison, [SPEEDUP, CORRECT]) == [
        "no submission has a speedup in both runs, so speed cannot be compared",
        "the runs share no submission, so the correct share cannot be compared",
    ]
    assert ([each.problem for each in comparison.only_before], comparison.pairs) == (["relu"], [])


def test_missing_submissions_are_broken_and_untimed():
    before = [*run(2.0, 2.0), sample("gone", 1.0), sample("new", status=None)]
    after = [*run(2.0), sample("s1", status=WRONG), sample("gone", status=None), sample("new")]
    comparison = compare(before, after)
    assert comparison.timed == 1
    assert {pair.before.name for pair in comparison.broken} == {"s1", "gone"}
    assert {pair.before.name for pair in comparison.mended} == {"new"}
    assert failures(comparison, [STATUS]) == ["correct in RUN_A and not in RUN_B: 2"]


def test_a_share_falls_beyond_chance():
    before = run(*[1.0] * 10)
    wrong = [each._replace(status=WRONG) for each in before]
    assert failures(compare(before, [*wrong[:2], *before[2:]]), [CORRECT]) == []  # p = 0.25
    assert failures(compare(before, [*wrong[:5], *before[5:]]), [CORRECT]) == [
        "the correct share fell by 50.0 points (p = 0.031)"
    ]


def shown(before, after):
    drawn = io.StringIO()
    render_comparison(compare(before, after), [], Console(file=drawn, width=100))
    return drawn.getvalue().splitlines()


def test_verdicts_are_compared_without_speedups():
    untimed = [sample("x"), sample("y"), sample("z", status=None)]
    no_speed = "speed: no submission has a speedup in both runs"
    assert shown(untimed, untimed) == ["3 submissions in both runs", "same verdict: 2 of 3", no_speed]
    assert shown([], []) == ["0 submissions in both runs", no_speed]


def test_changed_verdicts_are_named():
    right, wrong = [sample("x"), sample("y")], [sample("x", status=WRONG), sample("y", status=None)]
    assert shown(right, wrong)[-2:] == [
        "broken: relu/x: correct before, wrong_result now",
        "broken: relu/y: correct before, missing now",
    ]
    assert shown(wrong, right)[-1] == "fixed: relu/y: missing before, correct now"


def test_cases_of_two_runs_are_compared():
    small = CaseSample("small", Status.CORRECT, 3.0, 2.9, 3.1)
    before = [
        *(small, CaseSample("decode", Status.CORRECT, 1.0, 0.99, 1.01, "M = 1")),
        *(CaseSample("prefill", Status.CORRECT, 2.0, 1.9, 2.1, "M = 512"), CaseSample("chunk", Status.CORRECT, 2.0)),
    ]
    after = [
        *(small, CaseSample("decode", Status.CORRECT, 0.5, 0.49, 0.51, "M = 1")),
        *(CaseSample("prefill", WRONG, axes="M = 512"), CaseSample("chunk", None)),
    ]
    runs = [[sample("mine", 2.0)._replace(cases=tuple(cases))] for cases in (before, after)]
    (document,) = comparison_document(compare(*runs), [], [])["submissions"]
    assert [(each["case"], each["axes"], each["change"]) for each in document["cases"]] == [
        ("small", "", "same"),
        ("decode", "M = 1", "slower"),
        ("prefill", "M = 512", "broken"),
    ]
    lines = shown(*runs)
    assert "cases: second run slower in 1, broken in 1 of 3, slowest 0.500x at M = 1" in lines
    assert "0.500x relu/mine at case decode (M = 1): slower" in (" ".join(line.split()) for line in lines)
    assert "relu/mine at case prefill (M = 512): broken" in lines
    assert "chunk" not in "".join(lines)  # left out in one of the runs: neither broken nor fixed
    assert any(line.startswith("1 of 1 ratio: measured differently") for line in lines)


@pytest.mark.parametrize(
    "text", ["", "speed:-5%", "speedup:5%", "speedup:-5", "speedup:-100%", "speedup:-x%", "Status"]
)
def test_an_unknown_rule_is_refused(text):
    with pytest.raises(UsageError, match="not a rule for --fail-on"):
        parse_rule(text)


def test_a_rule():
    assert parse_rule("correct:-2.5%") == Rule("correct", 2.5)


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        (sample(), sample(status=WRONG), VerdictChange.BROKEN),
        (sample(), sample(status=None), VerdictChange.BROKEN),
        (sample(status=WRONG), sample(), VerdictChange.FIXED),
        (sample(status=WRONG), sample(status=Status.BUILD_ERROR), VerdictChange.OTHER),
        (sample(status=WRONG), sample(status=WRONG), VerdictChange.SAME),
        (sample(speedup=2.0), sample(speedup=1.8), VerdictChange.SLOWER),
        (sample(speedup=2.0), sample(speedup=2.2), VerdictChange.FASTER),
        (sample(speedup=2.0, noise=0.2), sample(speedup=2.2, noise=0.2), VerdictChange.SAME),
        (sample(speedup=2.0), sample(), VerdictChange.SAME),
        (sample(speedup=2.0, noise=None), sample(speedup=9.0), VerdictChange.SAME),
    ],
)
def test_the_change_of_a_submission(before, after, change):
    (pair,) = compare([before], [after]).pairs
    assert pair.change is change
