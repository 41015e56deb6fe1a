"""Runs say how their speedups were measured, and a comparison never mixes kinds of calls silently."""

import contextlib
import csv
import io
import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from evaluator.batch.progress_display import JsonLines, LineDisplay, summary
from evaluator.batch.runs.index import row_of
from evaluator.batch.runs.run_folder import manifest_for, opened
from evaluator.batch.scheduler import CardResult
from evaluator.commands import main as cli
from evaluator.files.card_files import write_card
from evaluator.grade_options import GradeOptions
from evaluator.records import DeviceKind
from tests import cards


def run_of(name, **made):
    with opened(Path(name), manifest_for(GradeOptions(DeviceKind.CUDA), "submissions")) as folder:
        for submission, card in made.items():
            named = replace(card, submission=replace(card.submission, name=submission))
            write_card(named, folder.cards / f"relu/{submission}.json")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("runs")
    with contextlib.chdir(made):
        write_runs()
    return made


@pytest.fixture(autouse=True)
def _here(folder, monkeypatch):
    monkeypatch.chdir(folder)


def write_runs():
    run_of(
        "first", a=cards.windows_card(), b=cards.mixed_card(), c=cards.wrong_card(device=cards.windows_card().device)
    )
    run_of("second", a=cards.mixed_card(), b=cards.mixed_card())


REMARKS = (
    (
        "Speedups: 1 in windows of calls, 1 with windows of one side and single calls of the other; inputs cold in L2 "
        "in 2."
    ),
    "1 speedup with a host-bound side: its calls wait for the host.",
)


@pytest.mark.parametrize("option", ["--markdown", "--html"])
def test_a_report_counts_the_kinds_of_calls(option, capsys):
    assert cli.run(["report", "first", option, *(["page.html"] if option == "--html" else [])]) == 0
    text = capsys.readouterr().out if option == "--markdown" else Path("page.html").read_text()
    assert [line for line in REMARKS if line not in text] == []


def test_the_terminal_and_the_document_have_the_counts(capsys):
    assert cli.run(["report", "first"]) == 0
    assert " ".join(REMARKS) in " ".join(capsys.readouterr().out.split())
    assert cli.run(["report", "first", "--json"]) == 0
    (device,) = json.loads(capsys.readouterr().out)["devices"]
    assert device["total"]["measured"] == {
        "windows": 1,
        "single": 0,
        "mixed": 1,
        "cold": 2,
        "warm": 0,
        "host_bound": 1,
    }


def test_the_page_names_a_speedup_of_two_kinds_and_shows_intervals():
    assert cli.run(["report", "first", "--html", "page.html"]) == 0
    page = Path("page.html").read_text()
    assert page.count("x, windows against single calls</td>") == 1  # the row
    assert page.count("x), windows against single calls</td>") == 1  # the best of the problem
    assert "2.00x (1." in page


def test_rows_have_the_kinds(capsys):
    assert cli.run(["report", "first", "--submissions", "rows.csv", "--junit", "junit.xml"]) == 0
    rows = {row["name"]: row for row in csv.DictReader(Path("rows.csv").read_text().splitlines())}
    found = {
        name: [row[key] for key in ("reference_calls", "submission_calls", "l2", "host_bound")]
        for name, row in rows.items()
    }
    assert found == {
        "a": ["windows", "windows", "cold", "False"],
        "b": ["single calls", "windows", "cold", "True"],
        "c": ["", "", "", ""],
    }
    assert '<property name="reference_calls" value="single calls" />' in Path("junit.xml").read_text()


def test_a_comparison_says_which_ratios_mix_kinds(capsys):
    assert cli.run(["compare", "first", "second", "--html", "page.html"]) == 0
    text = capsys.readouterr().out
    said = (
        "1 of 2 ratios: measured differently in the two runs "
        "(windows or single calls, inputs cold or warm in L2, other cases)"
    )
    assert said in text
    assert [line.endswith("measured differently") for line in text.splitlines() if "relu/" in line].count(True) == 1
    page = Path("page.html").read_text()
    assert said in page
    assert page.count(", measured differently</td>") == 1
    assert cli.run(["compare", "first", "second", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["measured_differently"] == 1
    assert cli.run(["compare", "second", "second"]) == 0
    assert "measured differently" not in capsys.readouterr().out
    first = document["submissions"][0]
    assert first["measured_before"]["reference_calls"] == "windows"
    assert first["measured_after"]["reference_calls"] == "single calls"


def test_the_progress_of_a_batch_names_a_speedup_of_two_kinds():
    rows = [row_of(made(), "relu/a.json", 1, 1) for made in (cards.windows_card, cards.mixed_card)]
    said = [summary(CardResult(row, "graded")) for row in rows]
    assert ["windows against single calls" in line for line in said] == [False, True]
    stream = io.StringIO()
    JsonLines(stream, LineDisplay(io.StringIO(), 1)).result(CardResult(rows[1], "graded"))
    document = json.loads(stream.getvalue())
    found = [document[name] for name in ("reference_calls", "submission_calls", "l2")]
    assert found == ["single calls", "windows", "cold"]
    assert document["speedup_low"] < document["speedup"] < document["speedup_high"]
