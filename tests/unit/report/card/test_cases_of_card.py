# ruff: noqa: RUF001 - the screen's own multiplication sign
"""The cases of a card: contradictions, the score in place of the speedup, and their lines."""

import io

import msgspec
import pytest
from msgspec.structs import replace
from rich.console import Console

from evaluator.api import rewards
from evaluator.api.scorecard import Scorecard
from evaluator.batch.runs.index import row_of
from evaluator.cards.consistency import inconsistencies
from evaluator.findings import Code, finding
from evaluator.records import CaseResult, SizeName, Status
from evaluator.report.card.card_screen import render_card
from evaluator.report.card.feedback import feedback
from evaluator.report.ci.step_summary import card_markdown
from evaluator.report.ci.verdicts import verdict_of
from tests import cards

WRONG = CaseResult("hidden_1", {"batch_size": 61}, 1.0, Status.WRONG_RESULT, "C405", "off", hidden=True)
LEFT_OUT = CaseResult("prefill", {"batch_size": 9}, 4.0, None, None, "the budget of 9 s was spent")


def screen(card):
    stream = io.StringIO()
    render_card(card, Console(file=stream, width=120))
    return stream.getvalue()


def test_a_card_of_cases_is_consistent():
    card = cards.cases_card()
    assert inconsistencies(card) == []


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda card: {"score": None}, "score"),
        (lambda card: {"score": replace(card.score, speedup_low=card.score.speedup_low * 1.01)}, "score"),
        (lambda card: {"cases": [], "score": card.score}, "score"),
        (lambda card: {"cases": [replace(card.cases[0], speedup=9.0), card.cases[1]]}, "cases[0]"),
        (lambda card: {"cases": [replace(card.cases[0], name="other"), card.cases[1]]}, "cases[0]"),
        (lambda card: {"cases": [card.cases[0], replace(card.cases[1], code="C405")]}, "cases[1].code"),
        (lambda card: {"cases": [*card.cases, WRONG]}, "cases[2].status"),
        (lambda card: {"status": Status.WRONG_RESULT, "reason": finding(Code.WRONG_VALUES, "off")}, "cases"),
    ],
)
def test_an_edited_card_is_found(change, place):
    card = cards.cases_card()
    assert place in [each.place for each in inconsistencies(replace(card, **change(card)))]


def test_the_score_takes_the_place_of_the_speedup():
    card = cards.cases_card(required_own_kernel=0.5)
    score = card.score.speedup
    assert score == pytest.approx(card.timing.speedup**0.75 * 0.5**0.25)
    assert Scorecard.of(card).speedup == score
    assert verdict_of(card, None).speedup == score
    assert row_of(card, "relu/relu_inline.json", 1, 1).speedup == score
    assert "1.91x, faster in 1 of 2 cases, slowest 0.500 x at batch_size = 1)" in repr(Scorecard.of(card))
    assert rewards.speedup(card) == pytest.approx(0.3 + card.score.speedup_low)
    unsure = replace(card.cases[1], speedup_low=0.0, speedup_high=None)
    unquoted = cards.cases_card(unsure)
    assert (Scorecard.of(unquoted).speedup, unquoted.score.speedup_low) == (None, 0.0)


def test_cases_that_were_only_checked_leave_the_card_its_speedup():
    checked = CaseResult("hidden_1", {"batch_size": 61}, 1.0, Status.CORRECT, hidden=True)
    card = cards.cases_card(checked)
    assert (card.score, Scorecard.of(card).speedup) == (None, card.timing.speedup)
    assert inconsistencies(card) == []


def test_a_wrong_card_has_no_speedup():
    card = cards.cases_card(WRONG, status=Status.WRONG_RESULT, reason=finding(Code.WRONG_VALUES, "off"))
    assert card.quoted == (None, None, None)


def test_the_screen_has_the_score_and_a_line_for_each_case():
    shown = screen(cards.cases_card())
    assert (
        "  Score          1.91 ×, between 1.89 and 1.92 × (95 % sure), the weighted geometric mean of 2 cases\n"
        in shown
    )
    assert "  Cases          faster in 1 of 2 cases, slowest 0.500 × at batch_size = 1\n" in shown
    assert "decode  batch_size = 1   0.500 × (0.490 to 0.510)  weight 1\n" in shown
    assert "Cases" not in screen(cards.cases_card(replace(WRONG, status=Status.CORRECT, code=None, message=None)))


def test_wrong_cases_and_those_left_out_are_named():
    card = cards.cases_card(WRONG, LEFT_OUT, status=Status.WRONG_RESULT, reason=finding(Code.WRONG_VALUES, "off"))
    shown = screen(card)
    assert "not correct in 1 of 2 cases, faster in 1 of 1 case" in shown
    assert "hidden_1  batch_size = 61  wrong result C405" in shown
    assert "left out: the budget of 9 s was spent" in shown
    assert "> hidden_1 (batch_size = 61): wrong result C405" in feedback(card)


def test_the_axes_of_a_card_from_elsewhere_do_nothing_to_the_screen():
    hostile = CaseResult("decode", {"\x1b[2J": "\x1b]0;owned\x07\n"}, 1.0, Status.CORRECT, None, None, 2, 1, 3, 1, 2)
    for text in (screen(cards.cases_card(hostile, LEFT_OUT)), feedback(cards.cases_card(hostile, LEFT_OUT))):
        assert "\x1b" not in text
        assert "\x07" not in text


def test_a_step_s_summary_has_the_sentence():
    assert "Cases: faster in 1 of 2 cases, slowest 0.500 x at batch_size = 1." in card_markdown(cards.cases_card())


def test_two_named_cases_are_shown_without_a_score():
    wrong = replace(WRONG, name="decode", hidden=False)
    assert "decode" in screen(
        cards.cases_card(wrong, status=Status.WRONG_RESULT, reason=finding(Code.WRONG_VALUES, "off"))
    )


def test_cards_of_two_sizes_before_cases_are_read(tmp_path):
    from evaluator.files.card_files import read_card
    from evaluator.schema import faults_of

    document = msgspec.to_builtins(cards.card())
    document["problem"]["further_sizes"] = {"awkward": {"batch_size": 7}}
    for check in document["checks"][6:]:
        check["size"] = "awkward"
    path = tmp_path / "card.json"
    path.write_bytes(msgspec.json.encode(document))
    assert read_card(path).sizes == (SizeName.SMALL, SizeName.AWKWARD)
    assert faults_of(path.read_bytes(), path) == []


def test_the_index_and_the_page_have_the_cases():
    from evaluator.report.page.detail import PageCases, detail_of

    row = row_of(cards.cases_card(), "relu/relu_inline.json", 1, 1)
    assert [(name, axes) for name, *_, axes in msgspec.json.decode(row.cases)] == [
        ("small", "batch_size = 64"),
        ("decode", "batch_size = 1"),
    ]
    assert row_of(cards.card(), "relu/relu_inline.json", 1, 1).cases == ""
    assert detail_of(cards.cases_card()).cases.rows[1] == (
        *("decode", "batch_size = 1", "1", "0.500 x (0.490 to 0.510)"),
        *("1.00 ms", "2.00 ms"),
    )
    assert detail_of(cards.card()).cases == PageCases()


def test_a_report_has_a_row_for_each_case():
    from evaluator.report.run.run_tables import document, markdown
    from evaluator.report.run.summary import CaseSample, Device, RunSample, sections

    gpu = Device("cuda", "H200", timed=True)
    fast = CaseSample("decode", Status.CORRECT, 4.0, 3.9, 4.1)
    slow = CaseSample("decode", Status.CORRECT, 1.0, 0.9, 1.1)
    others = (CaseSample("decode", Status.WRONG_RESULT), CaseSample("prefill", None))
    rows = [(fast,), (slow,), others]
    samples = [RunSample("relu", 1, str(at), gpu, Status.CORRECT, True, cases=case) for at, case in enumerate(rows)]
    made = sections(samples, gpu)
    assert [list(each.values()) for each in document(made)["devices"][0]["cases"]] == [
        ["relu", "decode", 3, 2, 1, 2.0],
        ["relu", "prefill", 0, 0, 0, None],
    ]
    assert "| relu, decode | 2 of 3 | 1 | 2.00x |" in markdown(made)


def test_the_benchmark_s_rule_is_asked_at_the_cases_of_the_workload():
    """Not at another size, which the judge chose, nor at a hidden case."""
    others = [replace(WRONG, status=Status.CORRECT, code=None, message=None), CaseResult("a", {}, 1.0, Status.CORRECT)]
    awkward = CaseResult("awkward", {}, 1.0, Status.CORRECT)
    for name, opinion in (("small", False), ("a", False), ("hidden_1", True), ("awkward", True)):
        checks = [cards.check(benchmark_ok=True), cards.check(1, size=name, benchmark_ok=False)]
        assert cards.cases_card(*others, awkward, checks=checks).benchmark_of_checks is opinion
