"""Tables in lines, and a run's report at the widths that terminals and pipes have."""

import io

import pytest
from rich.cells import cell_len
from rich.console import Console

from evaluator.records import Status
from evaluator.report.layout.markup import table_lines
from evaluator.report.run.exports import ExplainedSample
from evaluator.report.run.run_tables import render
from evaluator.report.run.summary import Device, RunSample, sections
from evaluator.text import NO_WIDTH

NAMES = (
    "level2/98_Matmul_AvgPool_GELU_Scale_Max",
    "level1/96_HuberLoss",
    "level3/44_MiniGPTBlock_with_a_name_that_is_longer_than_any_terminal_of_eighty_columns_is_wide",
)


def drawn(width):
    device = Device("cpu", "AMD EPYC", timed=True)
    samples = [
        RunSample(name, level, f"sample_{number}", device, Status.CORRECT, built=True, speedup=1.234)
        for level, name in enumerate(NAMES, 1)
        for number in range(3)
    ]
    failed = [
        ExplainedSample(RunSample(name, 1, f"sample_{index}", device, Status.RUNTIME_ERROR, reason="R301"))
        for index, name in enumerate(NAMES)
    ]
    stream = io.StringIO()
    console = Console(file=stream, width=width)
    render(sections(samples, device), console, failed)
    return stream.getvalue()


@pytest.mark.parametrize("width", [60, 80, 100, NO_WIDTH])
def test_no_number_and_no_name_is_shortened(width):
    text = drawn(width)
    assert "…" not in text
    joined = "".join(text.split())
    for name in NAMES:
        if width == NO_WIDTH:
            assert f"{name}  " in text
    by_problem = text.split("By problem")[1].split("Not correct")[0]
    for level in range(3):
        assert by_problem.count("100.0 %") >= 9, level
    assert by_problem.count("1.23x") == 3
    for word in ("fast_1.5", "fast_2", "runtime_error", "R301"):
        assert word in text
    assert joined.count("1.23x") >= 6


def test_on_a_terminal_of_80_columns_no_line_is_longer():
    assert max(map(len, drawn(80).splitlines())) <= 80


def test_folded_names_are_whole_when_put_together():
    lines = table_lines(["", "value"], [["a" * 30, "100.0 %"], ["b" * 5, "9.0 %"]], 25)
    assert [line[:16].strip() for line in lines] == ["", "a" * 16, "a" * 14, "bbbbb"]
    assert [line[16:].strip() for line in lines] == ["value", "100.0 %", "", "9.0 %"]
    assert max(map(cell_len, lines)) == 25


def test_a_name_of_wide_characters_keeps_the_columns_in_line():
    lines = table_lines(["", "value"], [["漢字" * 6, "100.0 %"], ["b", "9.0 %"]], 25)
    assert {cell_len(line) for line in lines if "%" in line or "value" in line} == {25}


def test_numbers_stay_whole_where_there_is_no_room_for_them():
    lines = table_lines(["name", "one", "two"], [["n" * 20, "1" * 20, "2" * 20]], 30)
    assert "1" * 20 in lines[1]
    assert lines[1].endswith("2" * 20)


@pytest.mark.parametrize("width", [1, 60, 80, NO_WIDTH])
def test_a_column_without_width_is_empty(width):
    assert table_lines(["", "value"], [], width) == ["  value"]
    assert table_lines(["", "value"], [["\u0301", "1"]], width)[0] == "  value"


@pytest.mark.parametrize(
    ("wrong", "line"), [(0, ""), (1, "1 of the wrong results is"), (2, "2 of the wrong results are")]
)
def test_results_wrong_on_other_values_alone_are_counted(wrong, line):
    device = Device("cpu", "AMD EPYC", timed=True)
    reasons = [*["C422"] * wrong, "C405"]
    samples = [
        RunSample("relu", 1, f"sample_{number}", device, Status.WRONG_RESULT, built=True, reason=reason)
        for number, reason in enumerate(reasons)
    ]
    stream = io.StringIO()
    render(sections(samples, device), Console(file=stream, width=200), [])
    assert ("--values own" in stream.getvalue()) is bool(wrong)
    assert line in stream.getvalue()
