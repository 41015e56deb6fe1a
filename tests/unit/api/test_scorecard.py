"""The card that programs see: the record with views, and the same file."""

import inspect

import msgspec
import pytest

from evaluator import records
from evaluator.files.card_files import card_bytes
from evaluator.records import GradeMode
from tests import cards
from warpgrade import Candidate, CardError, ProblemText, Progress, Scorecard, Status, read_card

HOSTILE = "</pre><script>alert(1)</script>\x1b[2J"


def test_it_is_the_same_card():
    card = cards.card()
    seen = Scorecard.of(card)
    assert isinstance(seen, records.Scorecard)
    assert card_bytes(seen) == card_bytes(card)
    assert Scorecard.__struct_fields__ == records.Scorecard.__struct_fields__


def test_it_is_written_and_read(tmp_path):
    card = Scorecard.of(cards.wrong_card())
    card.write(tmp_path / "card.json")
    assert read_card(tmp_path / "card.json") == card
    with pytest.raises(CardError, match="cannot read"):
        read_card(str(tmp_path / "none.json"))


def test_correct_and_speedup():
    card = Scorecard.of(cards.card())
    assert card.correct
    assert card.speedup == card.timing.speedup > 1
    wrong = msgspec.structs.replace(card, status=Status.WRONG_RESULT)
    assert not wrong.correct
    assert wrong.speedup is None
    assert Scorecard.of(cards.card(timing=None)).speedup is None


def test_the_repr_of_what_is_graded_is_short_too():
    """Errors and progress show candidates; a problem as text and a submission may have thousands of lines."""
    long = "import torch\n" * 10_000
    candidate = Candidate(ProblemText(long, name=long), long, name=long)
    progress = Progress(candidate, Scorecard.of(cards.card()), 1, 2)
    assert repr(Candidate("relu", None)) == "Candidate('relu', None, name='candidate')"
    assert repr(candidate).startswith("Candidate(ProblemText('import torch")
    assert len(repr(progress)) < 400
    assert "\n" not in repr(progress)


def test_the_repr_is_one_short_line():
    assert repr(Scorecard.of(cards.card())) == "Scorecard(correct: relu/relu_inline, on cpu, 2.98x)"
    checked = Scorecard.of(cards.card(mode=GradeMode.CHECK, timing=None))
    assert repr(checked) == "Scorecard(correct: relu/relu_inline, on cpu, mode check)"
    named = msgspec.structs.replace(cards.wrong_card().submission, name="a\n\x1b[2J" * 10_000)
    found = repr(Scorecard.of(cards.wrong_card(submission=named)))
    assert found.startswith("Scorecard(wrong_result: ")
    assert "C405" in found
    assert len(found) < 300
    assert found.isprintable()


def test_a_notebook_shows_the_screen_and_runs_nothing():
    printed = records.RunnerOutput(total_bytes=len(HOSTILE), text=HOSTILE)
    submission = msgspec.structs.replace(cards.card().submission, name=HOSTILE)
    shown = Scorecard.of(cards.crashed_card(output=printed, submission=submission))._repr_html_()
    assert "runtime error" in shown
    assert "&lt;script&gt;" in shown
    assert "<script" not in shown
    assert shown.count("</pre>") == 1


def test_every_field_is_explained():
    documented = inspect.getdoc(Scorecard)
    assert all(f"\n    {name}: " in documented for name in Scorecard.__struct_fields__)
