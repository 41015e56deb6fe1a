"""Verdicts for continuous integration: what a workflow's runner or a code host would make of hostile text."""

import re

import msgspec
import pytest

from evaluator.findings import Code, finding
from evaluator.records import Status
from evaluator.report.ci.step_summary import card_markdown
from evaluator.report.ci.verdicts import Location, Verdict, annotations, concise, verdict_of
from evaluator.report.layout.markup import folded
from evaluator.report.layout.quotation import disarmed, disarmed_json
from tests import cards

ATTACK = "x\n::set-output name=a::b\r\n##[add-mask]c ::error,line=9::d [go](http://e) {0} |@team `<img>` `````"
_COMMAND = re.compile(r"^\s*::|##\[")
"""What the runner takes for a command: `::` at the start of a line, `##[` anywhere."""


def hostile(**changes):
    reason = finding(Code.WRONG_VALUES, ATTACK, line=3, next_step=ATTACK)
    submission = msgspec.structs.replace(cards.card().submission, name=ATTACK)
    return cards.wrong_card(**{"reason": reason, "findings": [reason], "submission": submission} | changes)


def test_one_line_for_each():
    verdicts = [
        verdict_of(cards.card(), "relu/a.py"),
        verdict_of(cards.uncompiled_card(), "relu/b.py"),
        verdict_of(cards.uncompiled_card(), None),
        Verdict("relu", "gone", None),
    ]
    assert concise(verdicts).splitlines() == [
        "relu/a.py: correct, 2.98x (2.96x to 3.01x)",
        "relu/b.py:9: build_error B203 the extension 'relu' does not compile",
        "relu/relu_inline: build_error B203 the extension 'relu' does not compile",
        "relu/gone: missing",
    ]
    assert len(concise([verdict_of(hostile(), ATTACK)]).splitlines()) == 1


def test_an_answer_has_no_line_in_its_file():
    submission = msgspec.structs.replace(cards.card().submission, extracted_from_answer=True)
    found = verdict_of(cards.uncompiled_card(submission=submission), "b.md")
    assert concise([found]).startswith("b.md: build_error")
    assert ",line=" not in annotations([found])


def test_annotations_of_what_is_not_correct_errors_first():
    unsure = cards.wrong_card(status=Status.INCONCLUSIVE, reason=finding(Code.NOT_EMULATED, "no"))
    verdicts = [
        verdict_of(cards.card(), "a.py"),
        verdict_of(unsure, "u.py"),
        verdict_of(cards.uncompiled_card(), "b,c.py"),
    ]
    lines = annotations(verdicts).splitlines()
    assert [line.split(" ")[0] for line in lines] == ["::error", "::warning"]
    assert lines[0].startswith("::error file=b%2Cc.py,line=9,title=relu/relu_inline%3A build_error::B203 ")
    assert "%0A" in lines[0]


def test_a_submission_adds_neither_commands_nor_properties():
    (line,) = annotations([verdict_of(hostile(), ATTACK)]).splitlines()
    found = re.fullmatch(r"::error file=([^,:]*),line=3,title=([^,:]*)::(.*)", line)
    assert found is not None
    assert "##[" not in line


def test_many_annotations_are_cut():
    lines = annotations([Verdict("relu", str(n), None) for n in range(60)]).splitlines()
    assert len(lines) == 51
    assert lines[-1] == "::notice title=Warpgrade::10 more submissions are not correct"


@pytest.mark.parametrize("text", [ATTACK, "::a", " \t::a", "a\r::b", "##[##[a", "a\n\n  ::b"])
def test_a_disarmed_text_holds_no_command(text):
    assert not any(_COMMAND.search(line) for line in re.split(r"[\r\n]", disarmed(text)))
    document = msgspec.json.encode({"a": text})
    assert b"##[" not in disarmed_json(document)
    assert msgspec.json.decode(disarmed_json(document)) == {"a": text}


def test_of_several_files_each_form_names_file_and_line():
    found = verdict_of(cards.several_card(), "my subs/relu/submission.toml")
    assert concise([found]) == "my subs/relu/csrc/relu.cpp:3: build_error B203 the extension 'relu' does not compile\n"
    assert annotations([found]).startswith("::error file=my subs/relu/csrc/relu.cpp,line=3,title=")


def test_of_several_files_a_reason_without_a_line_is_at_the_manifest():
    card = cards.several_card(reason=finding(Code.BAD_FILES, "no entry"), build=None)
    assert concise([verdict_of(card, "relu/submission.toml")]).startswith("relu/submission.toml: build_error S109")


@pytest.mark.parametrize("path", ["../../etc/passwd", "/etc/passwd", "a%0A::error", "a,line=9", "."])
def test_a_path_in_a_card_of_others_names_no_file_outside(path):
    card = cards.several_card(source=cards.SEVERAL.replace("csrc/relu.cpp", path))
    found = verdict_of(card, "relu/submission.toml")
    assert found.location == Location("relu/submission.toml", None)
    assert "passwd" not in concise([found]) + annotations([found])


def test_a_card_in_markdown_holds_foreign_text_in_code_alone():
    text = card_markdown(hostile())
    prose = re.sub(r"(?ms)^(`{3,})text$.*?^\1$", "", text)
    prose = re.sub(r"(?s)(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", prose)
    for mark in ("@team", "](", "<img", "::"):
        assert mark in text.replace("&lt;", "<")
        assert mark not in prose
    assert "| 2.98x (2.96x to 3.01x) | 1.85 ms | 621 µs |" in card_markdown(cards.card())


def test_a_folded_text_ends_neither_its_fence_nor_its_section():
    lines = folded("</summary><b>x", "a\n````\n</details>")
    assert lines[0] == "<details><summary><code>&lt;/summary&gt;&lt;b&gt;x</code></summary>"
    assert lines[2:5] == ["`````text", "a\n````\n</details>", "`````"]
