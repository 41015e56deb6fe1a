"""The order of a grade's cases, their merged outcome, and what is left out. Without a runner."""

import contextlib
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from evaluator.catalog import find_problem
from evaluator.errors import ProblemError
from evaluator.findings import Code, finding
from evaluator.grade_options import GradeOptions
from evaluator.judge import graded_cases
from evaluator.judge.setup.grade_terms import GradeTerms
from evaluator.progress import Silent, Stopwatch
from evaluator.records import AxisRange, Build, Case, DeviceKind, Outcome, RunnerOutput, SizeName, Status
from tests import cards

BUILT = Build(ok=True, import_s=0.0, units=[])
LISTED = [Case(f"case_{number}", {"batch_size": number}, weight=float(number)) for number in range(1, 7)]


@pytest.fixture
def grade():
    """Grade cases whose outcomes are given by name; the others are correct. Returns the outcome and the order."""

    def run(outcomes=None, *, hidden=None, origin="folder", device=DeviceKind.CPU, change=None, **options):
        relu = find_problem("relu")
        own = {name: replace(case, axes={"batch_size": 100}) for name, case in relu.cases.items()}
        problem = replace(relu, cases=own | {case.name: case for case in LISTED}, hidden=hidden or {}, origin=origin)
        terms = GradeTerms(problem, GradeOptions(device, **options), None, 2)
        context = SimpleNamespace(terms=terms, seeds=SimpleNamespace(replayed_cases=None))
        order = []

        @contextlib.contextmanager
        def at(case, *, is_hidden):
            context.terms = terms.at(case, is_hidden=is_hidden)
            yield
            context.terms = terms

        def grade_one(timer, build, detail):
            order.append(context.terms.size)
            right = Outcome(Status.CORRECT, checks=[cards.check()], build=build, output=RunnerOutput(3, detail))
            if context.terms.is_timed:
                right = replace(right, timing=cards.card().timing)
            return (outcomes or {}).get(context.terms.size, right)

        context.at = at
        if change is not None:
            change(context)
        timer = SimpleNamespace(rest=lambda: None, at=lambda *_, **__: contextlib.nullcontext("a timer"))
        return graded_cases.grade_cases(context, timer, BUILT, Stopwatch(Silent()), grade_one), order

    return run


def failed(status=Status.WRONG_RESULT, code=Code.WRONG_VALUES, message="off", **others):
    return Outcome(checks=[cards.check(ok=False)], **others).failed(status, finding(code, message))


def test_one_case_is_graded_as_it_is(grade):
    outcome, order = grade(size=SizeName.FULL)
    assert (outcome.cases, outcome.score, order) == ([], None, ["full"])
    assert outcome.output.text == ""


def test_every_case_has_a_result_in_the_listed_order(grade):
    outcome, order = grade(case=("all",))
    assert [each.name for each in outcome.cases] == [case.name for case in LISTED]
    assert sorted(order) == sorted(case.name for case in LISTED)
    assert order[0] == "case_1"
    assert len(outcome.checks) == len(LISTED)
    assert [each.weight for each in outcome.cases] == [1, 2, 3, 4, 5, 6]
    assert outcome.score.cases == len(LISTED)
    assert outcome.score.speedup == pytest.approx(outcome.timing.speedup)


def test_the_order_is_drawn(grade):
    assert len({tuple(grade(case=("all",))[1]) for _ in range(20)}) > 1


def test_a_failing_case_names_itself_and_ends_nothing_else(grade):
    wrong, late = failed(output=RunnerOutput(1, "!")), failed(Status.INCONCLUSIVE, Code.ROUNDING_DECIDES)
    outcome, order = grade({"case_3": wrong, "case_5": late}, case=("all",))
    assert len(order) == len(LISTED)
    assert (outcome.status, outcome.reason.code) == (Status.WRONG_RESULT, Code.WRONG_VALUES)
    assert outcome.reason.message == "at case case_3 (batch_size = 3, not 1): off"
    assert outcome.output.text == "!"
    statuses = {each.name: (each.status, each.code) for each in outcome.cases}
    assert statuses["case_3"] == (Status.WRONG_RESULT, "C405")
    assert statuses["case_5"] == (Status.INCONCLUSIVE, "C426")
    assert statuses["case_6"] == (Status.CORRECT, None)
    assert [each.median_ms is None for each in outcome.cases] == [False, False, True, False, True, False]


def test_a_failure_ends_the_grade_on_request_and_by_default(grade):
    outcome, order = grade({"case_2": failed()}, case=("all",), stop_at_failure=True)
    assert order == ["case_1", "case_2"]
    assert {each.message for each in outcome.cases[2:]} == {"case case_2 failed"}
    assert {each.status for each in outcome.cases[2:]} == {None}
    assert outcome.findings == []
    _, order = grade({"small": failed()}, hidden={"batch_size": AxisRange(1, 100)})
    assert order == ["small"]


def test_under_a_budget_the_heaviest_come_first_and_the_rest_is_named(grade, monkeypatch):
    now = iter(range(0, 1000, 10))
    monkeypatch.setattr(graded_cases, "time", SimpleNamespace(monotonic=lambda: float(next(now))))
    outcome, order = grade(case=("all",), budget_s=25.0)
    assert order == ["case_1", "case_6", "case_5"]
    (left_out,) = outcome.findings
    assert left_out.code == Code.CASES_LEFT_OUT
    assert left_out.message == "3 of 6 cases (43% of the weight) were left out: case_2, case_3, case_4"
    assert outcome.cases[1].message == "the budget of 25 s was spent"
    assert (outcome.status, outcome.score.cases) == (Status.CORRECT, 3)


def test_hidden_cases_are_checked_by_default_and_timed_on_request(grade):
    ranges = {"batch_size": AxisRange(1, 100)}
    outcome, order = grade(hidden=ranges)
    assert len(order) == 5
    assert [each.hidden for each in outcome.cases] == [False, True, True, True, True]
    assert [each.is_timed for each in outcome.cases] == [True, False, False, False, False]
    assert outcome.score is None
    outcome, _ = grade(hidden=ranges, case=("hidden",))
    assert all(each.is_timed for each in outcome.cases)
    assert grade(hidden=ranges, size=SizeName.SMALL)[1] == ["small"]


def test_a_wrong_hidden_case_names_the_drawn_axes(grade):
    outcome, _ = grade({"hidden_1": failed()}, hidden={"batch_size": AxisRange(1, 100)})
    axes = outcome.cases[1].axes
    assert outcome.reason.message == f"at case hidden_1 (batch_size = {axes['batch_size']}, not 100): off"


def test_a_bare_file_s_further_size_may_be_refused(grade):
    refusing = Outcome().failed(Status.RUNTIME_ERROR, finding(Code.FORWARD_FAILED, "no tail"))
    named, _ = grade({"awkward": refusing}, origin="kernelbench", case=("small", "awkward"))
    assert named.status is Status.RUNTIME_ERROR
    outcome, _ = grade({"awkward": refusing}, origin="kernelbench", device=DeviceKind.EMULATED)
    assert outcome.status is Status.CORRECT
    assert [each.code for each in outcome.findings] == [Code.SIZE_REFUSED]
    assert (outcome.cases[1].status, outcome.cases[1].code) == (None, Code.SIZE_REFUSED)


def test_findings_of_further_cases_have_a_name_and_are_said_once(grade):
    def remarked(*messages):
        return Outcome(Status.CORRECT, findings=[finding(Code.WIDE_TOLERANCE, message) for message in messages])

    outcome, _ = grade({"small": remarked("a"), "case_1": remarked("a", "b")}, case=("small", "case_1"))
    assert [each.message for each in outcome.findings] == ["a", "case case_1: b"]


def test_a_case_at_which_the_reference_does_not_run_is_left_out(grade):
    def refused(context):
        at = context.at

        def refusing(case, *, is_hidden):
            if case.name == "case_2":
                raise ProblemError("no such extent")
            return at(case, is_hidden=is_hidden)

        context.at = refusing

    outcome, _ = grade(case=("all",), change=refused)
    assert outcome.status is Status.CORRECT
    assert [each.code for each in outcome.findings] == [Code.CASES_LEFT_OUT]
    assert {each.name: each.status for each in outcome.cases}["case_2"] is None


def test_a_card_with_a_case_left_out_quotes_its_score_alone(grade):
    outcome, _ = grade(case=("all",), budget_s=0.0)
    card = replace(cards.card(), cases=outcome.cases, score=outcome.score)
    assert sum(each.is_timed for each in card.cases) == 1
    assert card.quoted == (None, None, None)
