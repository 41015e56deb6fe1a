"""The table of KernelBench's problems against bad submissions: which commit, what remains, and for which reason."""

from benchmarks.verdicts import admission_table
from benchmarks.verdicts.admission_table import REASONS, Line, measure, table
from evaluator.records import Admission, ControlResult, SizeName

FILE = """\
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, unused):
        return x + 1


def get_inputs():
    return [torch.randn(8, 64), torch.randn(8)]


def get_init_inputs():
    return []
"""


def line(name, passing=(), refused=(), commit="abc1234"):
    controls = [
        ControlResult(
            control=control,
            gets_away=control in passing,
            passes_on=[],
            caught_on=None,
            caught_by_rounding=False,
            advice="",
            passes_kernelbench=True,
        )
        for control in ("answers zeros", "ignores weight a.bias")
    ]
    return Line(commit, name, Admission(name, SizeName.SMALL, [], {}, controls, list(refused)), None, 1.0)


def rows(text, heading):
    section = text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return [row for row in section.splitlines() if row.startswith("| level")]


def test_what_remains_has_its_reason_or_is_not_explained():
    lines = [
        line("level1/1_Fine"),
        line("level2/80_Gemm", ["answers zeros"]),
        line("level3/1_New", ["ignores weight a.bias"]),
        line("level3/2_Strict", refused=["another order (rounded) on as_given"]),
    ]
    remaining = rows(table(lines), "What remains")
    assert remaining == [
        f"| level2/80_Gemm | answers zeros | none | {REASONS['2-80']} |",
        "| level3/1_New | ignores weight a.bias | none | *not explained* |",
        "| level3/2_Strict | none | another order (rounded) on as_given | *not explained* |",
    ]
    assert "| Warpgrade lets at least one pass | 0 | 1 | 1 |" in table(lines)
    assert "| Warpgrade lets a weight be ignored | 0 | 0 | 1 |" in table(lines)
    assert "No problem lets a control pass" in table(lines[:1])


def test_the_page_has_the_commits_and_the_files_that_were_not_measured():
    lines = [line("level1/1_One"), line("level1/2_Two", commit="abc1234"), line("level1/3_Three", commit="old5678")]
    text = table([*lines, Line("abc1234", "level1/4_Four", None, "not done after 600 s", 600.0)])
    assert "Measured: 2 problems at commit abc1234, 1 problem at commit old5678." in text
    assert "Not measured of level 1: 96 problems (5 to 100)." in text
    assert "Not measured of level 3: 50 problems (1 to 50)." in text
    assert "| hands an input back | 1-19, 1-20, 1-31, 1-32 | none | 1-19 (not measured), " in text


def test_files_are_measured_once_at_each_commit(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "files" / "level1"
    folder.mkdir(parents=True)
    (folder / "1_Unused.py").write_text(FILE)
    target = tmp_path / "admissions.jsonl"
    for commit, lines in (("one", 1), ("one", 1), ("two", 2)):
        monkeypatch.setattr(admission_table, "_commit", lambda commit=commit: commit)
        measure(folder.parent, target, jobs=1)
        assert len(target.read_text().splitlines()) == lines
    (found,) = admission_table._read(target)
    assert found.commit == "two"
    away = [each.control for each in found.admission.controls if each.gets_away]
    assert away == ["ignores input 1"]
