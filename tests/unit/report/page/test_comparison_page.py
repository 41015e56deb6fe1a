"""The page of two runs: changes, terms that differ, and hostile names as text."""

import functools
import re

import pytest

from evaluator.records import Status
from evaluator.report.page import writer
from evaluator.report.page.detail import Detail, PageCode, code_of, detail_of
from evaluator.report.page.pages import ComparedRun, comparison_page
from evaluator.report.run.run_comparison import compare
from evaluator.report.run.summary import CaseSample
from tests import cards
from tests.batch.samples import sample
from tests.unit.report.page.reader import HOSTILE_NAMES, Reader

TERMS = [("device", "cuda"), ("l2", "cold")]


def nothing(problem, name):
    return None, None


def timed(name, status=Status.CORRECT, speedup=2.0):
    return sample(name, speedup, status)


def page(before, after, evidence=nothing, terms=TERMS):
    runs = ComparedRun("one", TERMS), ComparedRun("two", terms)
    return b"".join(comparison_page(compare(before, after), *runs, [], evidence)).decode()


def rows(shown):
    return dict(re.findall(r'<tbody id="s/relu/(\w+)" data-kind="(\w+)"', shown))


def test_each_submission_has_its_change():
    before = [timed("a"), timed("b"), timed("c"), timed("old", Status.WRONG_RESULT, None)]
    after = [timed("a", speedup=3.0), timed("b", Status.WRONG_RESULT, None), timed("c"), timed("new")]
    shown = page(before, after)
    assert rows(shown) == {"a": "faster", "b": "broken", "c": "same", "old": "unpaired", "new": "unpaired"}
    assert "1.50x (1.48x to 1.52x)" in shown
    assert "<p>1 only in the first run, not compared</p>" in shown
    verdicts = re.search(r"<td[^>]*>correct</td><td[^>]*>wrong_result</td><td[^>]*>1</td>", shown)
    assert verdicts
    unpaired = re.search(r'<tbody id="s/relu/new".*?</tbody>', shown, re.DOTALL)[0]
    assert re.search(r'<td class="kind">unpaired</td><td [^>]*></td><td [^>]*>correct</td>', unpaired)


def test_where_no_time_was_measured_no_column_of_speed_is_there():
    shown = page([timed("a", speedup=None)], [timed("a", Status.WRONG_RESULT, None)])
    assert rows(shown) == {"a": "broken"}
    assert "speedup</th>" not in shown
    assert "second to first" not in shown
    assert "first speedup</th>" in page([timed("a")], [timed("a", Status.WRONG_RESULT, None)])


def test_only_terms_that_differ_are_shown():
    assert "<p>None.</p>" in page([timed("a")], [timed("a")])
    shown = page([timed("a")], [timed("a")], terms=[("device", "cuda"), ("l2", "warm"), ("size", "full")])
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", shown)]
    assert ["l2", "cold", "warm"] in cells
    assert ["size", "", "full"] in cells
    assert not any(row[:1] == ["device"] for row in cells)


def test_equal_code_is_shown_once():
    detail = Detail(PageCode("only = 1", 0), [])
    shown = page([timed("a")], [timed("a")], lambda problem, name: (detail, detail))
    assert shown.count("only = ") == 1
    assert "The code is the same." in shown
    other = detail._replace(code=PageCode("only = 2", 0))
    shown = page([timed("a")], [timed("a")], lambda problem, name: (detail, other))
    assert shown.count("only = ") == 2


def test_a_submission_of_the_second_run_alone_has_its_code():
    detail = Detail(PageCode("only = 1", 0), [])
    shown = page([], [timed("a")], lambda problem, name: (None, detail))
    assert shown.count("only = ") == 1
    assert "<p>No card.</p>" in shown


def test_each_case_has_its_time_in_both_runs():
    fast = detail_of(cards.cases_card())
    row = fast.cases.rows[1]
    wrong = row._replace(result="wrong result C405", reference="", submission="")
    broken = fast._replace(cases=fast.cases._replace(rows=[fast.cases.rows[0], wrong]))
    small, decode = CaseSample("small", Status.CORRECT, 3.0, 2.97, 3.03), CaseSample("decode", Status.CORRECT, 0.5)
    before = timed("a")._replace(cases=(small, decode))
    slower = CaseSample("small", Status.CORRECT, 1.5, 1.485, 1.515)
    after = timed("a")._replace(cases=(slower, CaseSample("decode", Status.WRONG_RESULT)))
    shown = page([before], [after], lambda problem, name: (fast, broken))
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", each) for each in re.findall(r"<tr>(.*?)</tr>", shown)]
    (first,) = (each for each in cells if each[:2] == ["small", "batch_size = 64"])
    assert first[-2:] == ["0.500x (0.493x to 0.507x)", "slower"]
    second = ["decode", "batch_size = 1", "1", f"2.00 ms, {row.result}", "wrong result C405", "", "broken"]
    assert second in cells
    assert "cases: second run slower in 1, broken in 1 of 2, slowest 0.500x at small" in shown
    assert "<h3>Cases</h3>" not in page([timed("a")], [timed("a")], lambda problem, name: (fast, fast))


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_hostile_name_is_text(name):
    detail = Detail(code_of(name), [], output=name)
    side = sample(name, 2.0, problem=name)
    shown = page([side], [side], lambda problem, name: (detail, None))
    reader = Reader(re.sub(r"<(script|style)>.*?</\1>", "", shown, flags=re.DOTALL))
    assert not {"script", "img", "b"} & reader.names
    assert not {"src", "style", "onerror"} & {key for _, attributes in reader.tags for key in attributes}
    assert not set("\u202e\u2066\u200f\x00\x1b") & set(reader.text)
    assert len(shown) < 400_000


def test_the_details_have_a_bound(monkeypatch):
    monkeypatch.setattr(writer, "DETAILS_BYTES", 40_000)
    detail = functools.cache(lambda: detail_of(cards.card()))
    sides = [timed(str(number)) for number in range(50)]
    shown = page(sides, sides, lambda problem, name: (detail(), detail()))
    left_out = int(re.search(r"Code and findings of (\d+) submissions are omitted", shown)[1])
    assert 40 < left_out < 50
