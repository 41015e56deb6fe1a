"""The page of a run: the evidence of a card as escaped text."""

from evaluator.findings import Code, finding
from evaluator.protocol.submission_files import bad_path
from evaluator.records import MachineCode
from evaluator.report.run.html import Frame, PageEntry, detail_of, write_page
from tests import cards
from tests.unit.compile.binaries.test_sass import recorded


def page(tmp_path, machine_code):
    detail = detail_of(cards.card(machine_code=machine_code))
    entry = PageEntry("relu", 1, "mine", "correct", "", 2.0, 1.0, detail)
    write_page(tmp_path / "page.html", "a run", [], [entry])
    return (tmp_path / "page.html").read_text()


def test_the_machine_code_is_beside_the_other_evidence(tmp_path):
    assert "<p>Machine code: HMMA.1684.F32.TF32 (4) in gemm_tf32</p>" in page(tmp_path, recorded("tensor_cores"))
    hostile = MachineCode(not_looked_at="<script>alert(1)</script>")
    assert "<p>Machine code: not looked at: &lt;script&gt;alert(1)&lt;/script&gt;</p>" in page(tmp_path, hostile)


def test_a_card_without_machine_code_has_no_line(tmp_path):
    for nothing in (None, MachineCode()):
        assert "Machine code" not in page(tmp_path, nothing)


def test_of_several_files_each_place_has_its_file_and_line(tmp_path):
    detail = detail_of(cards.several_card())
    assert [place for place, _ in detail.findings] == ["csrc/relu.cpp, line 3", "csrc/size.h, line 1"]
    assert detail.frames == [Frame("csrc/relu.cpp, line 3", "expected ';'", "return size")]
    write_page(tmp_path / "page.html", "a run", [], [PageEntry("relu", 1, "mine", "x", "", None, 1.0, detail)])
    page = (tmp_path / "page.html").read_text()
    assert "<b>B203</b> csrc/relu.cpp, line 3: the extension" in page
    assert "<b>S120</b> csrc/size.h, line 1: addresses a reader" in page
    assert "<b>csrc/relu.cpp, line 3</b>: expected &#39;;&#39;" in page


def test_the_longest_path_keeps_its_line():
    path = "/".join(["x" * 100] * 3 + ["y" * 96 + ".cpp"])
    detail = detail_of(cards.several_card(source=cards.SEVERAL.replace("csrc/relu.cpp", path)))
    assert bad_path(path) is None
    assert detail.findings[0][0] == detail.frames[0].place == f"{path}, line 3"


def test_the_numbers_beside_the_code_are_those_of_the_places():
    lines = cards.SEVERAL.removesuffix("\n").split("\n")
    numbers = detail_of(cards.several_card()).numbers.split("\n")
    assert len(numbers) == len(lines)
    assert dict(zip(lines, numbers, strict=True))["    return size"] == "3"
    assert [number for line, number in zip(lines, numbers, strict=True) if line.startswith("#@ file")] == [""] * 4
    alone = detail_of(cards.card(source="a\n\fb\u2028c\nd"))
    assert alone.numbers == "1\n2\n3"


def test_a_finding_without_a_line_has_no_place():
    card = cards.card(findings=[finding(Code.FILES, "x")])
    assert [place for place, _ in detail_of(card).findings] == [""]
