"""The page of a run: the evidence of a card as escaped text."""

from evaluator.records import MachineCode
from evaluator.report.run.html import PageEntry, detail_of, write_page
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
