"""`regrade`: verdicts and statistics drawn again from what cards hold."""

import json

import pytest
from msgspec.structs import replace

from evaluator.batch.runs.results import read_run
from evaluator.cards.consistency import inconsistencies
from evaluator.cards.regrade import changes, regraded
from evaluator.commands import main as cli
from evaluator.files.card_files import read_card, write_card
from evaluator.findings import Code, finding
from evaluator.records import ClockKind, Status, Weights, WeightsGraded, WeightsRule
from evaluator.timing.quote import quote, unquoted
from tests import cards
from tests.batch.test_session import batch  # noqa: F401 - a fixture

ALL = [cards.card, cards.wrong_card, cards.uncompiled_card, cards.crashed_card, cards.unread_card]


def settled(card):
    """A card as this version would have written it."""
    return regraded(card)


@pytest.mark.parametrize("make", ALL)
def test_drawing_again_twice_changes_nothing(make):
    once = settled(make())
    assert once.status is make().status
    assert changes(once, regraded(once)) == []


def test_numbers_come_from_the_samples():
    card = settled(cards.card())
    edited = replace(card, timing=replace(card.timing, speedup=99.0, speedup_low=98.0, submission_median_ms=0.001))
    found = {change.field: change.after for change in changes(edited, regraded(edited))}
    assert found == {
        "speedup": card.timing.speedup,
        "speedup_low": card.timing.speedup_low,
        "submission_median_ms": card.timing.submission_median_ms,
    }


def test_findings_of_the_samples_are_made_anew_and_others_stay():
    card = settled(cards.card())
    stale = finding(Code.OUTLIERS, "no longer so")
    other = finding(Code.WEIGHTS_NOT_COPIED, "seeded")
    again = regraded(replace(card, findings=[stale, *card.findings, other]))
    assert stale not in again.findings
    assert other in again.findings


def test_that_a_side_was_timed_again_stays():
    card = settled(cards.card())
    again = finding(Code.NOT_QUIET, "timed again, and the slowest time is quoted", attempt=1)
    stale = finding(Code.NOT_QUIET, "an empty call takes 1 ms, with a spread of 2 ms")
    assert regraded(replace(card, findings=[again, stale])).findings[:1] == [again]
    assert stale not in regraded(replace(card, findings=[again, stale])).findings


def broken_check(card, **tensor):
    first = card.checks[0]
    tensors = [replace(first.tensors[0], **tensor), *first.tensors[1:]]
    return replace(card, checks=[replace(first, tensors=tensors), *card.checks[1:]])


@pytest.mark.parametrize("tensor", [{"ok": False}, {"mismatches": 3}, {"nonfinite": 1}])
def test_a_pass_that_shows_a_failure_is_none(tensor):
    again = regraded(broken_check(cards.card(), **tensor))
    assert again.status is Status.WRONG_RESULT
    assert again.reason.code == Code.WRONG_VALUES


@pytest.mark.parametrize("lacking", [{"checks": []}, {"timing": None}])
def test_correct_without_evidence_is_no_verdict(lacking):
    again = regraded(replace(cards.card(), **lacking))
    assert again.status is Status.INFRA_ERROR
    assert again.reason is not None


def test_the_command_reports_differences_and_writes_another_run(batch, hand_in, tmp_path, capsys):  # noqa: F811
    hand_in({"relu/a.py": "# right", "relu/b.py": "# wrong"})
    batch()
    assert cli.run(["regrade", "run", "--output", "first"]) == 0
    capsys.readouterr()
    assert cli.run(["regrade", "first"]) == 0
    assert capsys.readouterr().out.endswith("2 cards, 0 differences\n")
    path = tmp_path / "first/cards/relu/a.json"
    write_card(broken_check(read_card(path), mismatches=3), path)
    assert cli.run(["regrade", "first", "--json", "--output", "second"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["cards"] == 2
    assert [(each["name"], each["field"], each["after"]) for each in document["changes"]] == [
        ("a", "status", "wrong_result")
    ]
    entries = {entry.sample.name: entry.sample.status for entry in read_run(tmp_path / "second").entries}
    assert entries == {"a": Status.WRONG_RESULT, "b": Status.WRONG_RESULT}
    assert read_card(path).status is Status.CORRECT  # the run itself stays as it is
    assert cli.run(["regrade", "first"]) == 1
    assert "relu/a  status correct -> wrong_result" in capsys.readouterr().out


def test_what_is_no_run_is_told(tmp_path, capsys):
    assert cli.run(["regrade", str(tmp_path)]) == 2
    assert "is not a run folder" in capsys.readouterr().err


def unmatched(card):
    """The card as the judge writes it for a submission whose weights could not change (C421)."""
    weights = Weights(WeightsRule.CHANGING, WeightsGraded.FROZEN, reason="no parameter corresponds", unmatched=True)
    return replace(card, weights=weights, timing=unquoted(card.timing))


def test_a_speedup_that_the_judge_withheld_stays_withheld():
    card = unmatched(settled(cards.card()))
    assert inconsistencies(card) == []
    assert changes(card, regraded(card)) == []
    quoted = replace(card, timing=settled(cards.card()).timing)
    assert regraded(quoted).timing.speedup is None
    assert "only the reference's weights changed" in str(inconsistencies(quoted)[0])


def test_the_speedup_over_a_baseline_follows_from_windows():
    of_windows = cards.in_windows(cards.samples("baseline", 0.040), 0.020)
    submission = cards.in_windows(cards.samples("submission", 0.030), 0.010)
    sides = cards.samples("reference", 0.1), submission, cards.samples("reference", 0.1)
    timing = quote(ClockKind.SEALED, *sides).timing
    card = replace(cards.card(timing=timing), baselines=[cards.baseline(of_windows)])
    again = regraded(card)
    assert again.baselines[0].speedup == pytest.approx(2.0, rel=0.02)
    assert {each.field for each in changes(card, again)} >= {"baselines[0].speedup"}
    assert regraded(again) == again
