"""The page of a run: the evidence of a card as escaped text, and a size with a bound."""

import functools
import html
import re

import msgspec
import pytest

from evaluator.findings import Code, finding
from evaluator.protocol.submission_files import bad_path
from evaluator.records import MachineCode, Status
from evaluator.report.page import writer
from evaluator.report.page.detail import CompilerError, detail_of
from evaluator.report.page.pages import RunPage, run_page
from evaluator.report.page.writer import PageEntry, best_by_problem, fragment
from tests import cards
from tests.batch.samples import sample
from tests.unit.compile.test_sass import recorded
from tests.unit.report.page.reader import HOSTILE_NAMES, Reader

MEGABYTE = 1 << 20
OWN = {
    *("html", "head", "meta", "title", "style", "body", "div", "h1", "h2", "h3", "p", "label", "input", "span"),
    *("table", "thead", "tbody", "tr", "th", "td", "button", "script", "details", "summary", "a", "pre", "b", "code"),
    *("svg", "text", "line", "path", "figure", "figcaption", "dl", "dt", "dd"),
}


honest = functools.cache(cards.card)


def with_source(source):
    return msgspec.structs.replace(honest(), submission=msgspec.structs.replace(honest().submission, source=source))


def entry(card=None, problem="relu", name="mine", reason=""):
    return PageEntry(sample(name, 2.0, problem=problem), reason, 1.0, detail_of(card or honest()))


def page(*entries, **content):
    return b"".join(run_page(RunPage("a run", [], **content), entries)).decode()


def test_the_machine_code_is_beside_the_other_evidence():
    shown = page(entry(cards.card(machine_code=recorded("tensor_cores"))))
    assert "<p>Machine code: HMMA.1684.F32.TF32 (4) in gemm_tf32</p>" in shown
    hostile = MachineCode(not_looked_at="<script>alert(1)</script>")
    shown = page(entry(cards.card(machine_code=hostile)))
    assert "<p>Machine code: not looked at: &lt;script&gt;alert(1)&lt;/script&gt;</p>" in shown
    for nothing in (None, MachineCode()):
        assert "Machine code" not in page(entry(cards.card(machine_code=nothing)))


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_hostile_name_is_text_wherever_it_is_shown(name):
    shown = page(
        entry(with_source(name), name, name, reason=name), references={name: name}, terms=[(name[:50], name[:50])]
    )
    reader = Reader(re.sub(r"<(script|style)>.*?</\1>", "", shown, flags=re.DOTALL))
    assert reader.names <= OWN
    allowed = {"src", "style", "action", "onerror"}
    assert not allowed & {key for _, attributes in reader.tags for key in attributes}
    assert not set("\u202e\u2066\u200f\x00\x1b") & set(reader.text)
    identities = [attributes["id"] for _, attributes in reader.tags if "id" in attributes]
    assert len(identities) == len(set(identities))
    assert max(map(len, identities)) < 400


def test_names_that_differ_beyond_the_length_of_a_fragment_have_two_fragments():
    first, second = (fragment("s", "a" * 10_000 + end) for end in "xy")
    assert first != second
    assert len(first) < 400


def test_the_fastest_correct_submission_is_the_best():
    samples = [
        *(sample("slow", 1.5), sample("fast", 2.5), sample("wrong", 9.0, Status.WRONG_RESULT)),
        *(sample("unquoted", problem="softmax"), sample("none", status=None, problem="gelu")),
    ]
    relu, softmax, gelu = best_by_problem(samples)
    assert (relu.sample.name, relu.correct, relu.samples) == ("fast", 2, 3)
    assert (softmax.sample.name, gelu.sample) == ("unquoted", None)
    shown = page(*(PageEntry(each, "", 1.0, None) for each in samples))
    assert '<a href="#s/relu/fast">fast</a></td><td data-label="speedup">2.50x (2.48x to 2.52x)</td>' in shown


def test_a_page_has_each_reference_once():
    shown = page(entry(name="a"), entry(name="b"), references={"relu": "def reference(): pass"})
    assert shown.count("def reference(): ") == 1
    assert shown.count('data-reference="p/relu/reference"') == 2
    assert 'id="p/relu/reference"' in shown


def test_only_a_live_page_may_ask_its_server():
    policy = r'Content-Security-Policy" content="([^"]*)"'
    still, live = (re.search(policy, html.unescape(page(entry(), version=version)))[1] for version in ("", "7"))
    assert live == f"{still}; connect-src 'self'"
    assert still.startswith("default-src 'none'")


def test_the_details_of_a_page_have_a_bound(monkeypatch):
    monkeypatch.setattr(writer, "DETAILS_BYTES", 40_000)
    rows = [entry(name=str(number)) for number in range(100)]
    shown = page(*rows)
    kept = shown.count("<summary>code, findings and samples</summary>")
    assert 0 < kept < 20
    assert f"Code and findings of {100 - kept} submissions are omitted" in shown
    without = page(*(each._replace(detail=None) for each in rows))
    assert len(shown) - len(without) < 41_000


def test_a_large_source_takes_no_space_from_the_others(monkeypatch):
    """Escaped quotes are five times as long as the source: the bound is that of the page's bytes."""
    monkeypatch.setattr(writer, "DETAILS_BYTES", 600_000)
    large = with_source("'\"" * (2 * MEGABYTE))
    shown = page(entry(large, name="large"), *(entry(name=str(number)) for number in range(20)))
    assert "Code and findings of 1 submission are omitted" in shown
    assert len(shown) < 1 * MEGABYTE


def test_a_long_source_is_cut_and_the_rest_counted():
    assert "400000 more characters omitted; see the card." in page(entry(with_source("a = 1\n" * 100_000)))


def test_lines_have_their_numbers_although_a_browser_drops_the_first_line_break():
    shown = page(entry(with_source("\n\nx\n")))
    assert '<span class="lines" aria-hidden="true">1\n2\n3</span><pre>\n\n\nx\n</pre>' in shown


@pytest.mark.slow
def test_a_page_of_ten_thousand_submissions_is_small_enough_to_open():
    made = entry()
    many = [made._replace(sample=made.sample._replace(name=f"sample {number}")) for number in range(10_000)]
    bare = page(*(each._replace(detail=None) for each in many))
    assert len(bare) < 8 * MEGABYTE
    full = page(*many)
    assert len(full) < 8 * MEGABYTE + writer.DETAILS_BYTES
    assert "submissions are omitted" in full


def test_of_several_files_each_place_has_its_file_and_line():
    detail = detail_of(cards.several_card())
    assert [note.location for note in detail.notes] == ["csrc/relu.cpp, line 3", "csrc/size.h, line 1"]
    assert detail.frames == [CompilerError("csrc/relu.cpp, line 3", "expected ';'", "return size")]
    shown = page(entry(cards.several_card()))
    assert "<b>B203</b> csrc/relu.cpp, line 3: the extension" in shown
    assert "<b>S120</b> csrc/size.h, line 1: addresses a reader" in shown
    assert "<b>csrc/relu.cpp, line 3</b>: expected &#39;;&#39;" in shown


def test_the_longest_path_keeps_its_line():
    path = "/".join(["x" * 100] * 3 + ["y" * 96 + ".cpp"])
    detail = detail_of(cards.several_card(source=cards.SEVERAL.replace("csrc/relu.cpp", path)))
    assert bad_path(path) is None
    assert detail.notes[0].location == detail.frames[0].location == f"{path}, line 3"


def test_the_numbers_beside_the_code_are_those_of_the_places():
    lines = cards.SEVERAL.removesuffix("\n").split("\n")
    numbers = detail_of(cards.several_card()).code.numbers.split("\n")
    assert len(numbers) == len(lines)
    assert dict(zip(lines, numbers, strict=True))["    return size"] == "3"
    assert [number for line, number in zip(lines, numbers, strict=True) if line.startswith("#@ file")] == [""] * 4
    assert detail_of(cards.card(source="a\n\fb\u2028c\nd")).code.numbers == "1\n2\n3"


def test_a_finding_without_a_line_has_no_place():
    card = cards.card(findings=[finding(Code.FILES, "x")])
    assert [note.location for note in detail_of(card).notes] == [""]
