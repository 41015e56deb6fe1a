"""Output for continuous integration, from the command line."""

import csv
import io
import json
import re
import shlex
from xml.etree import ElementTree

import pytest

from tests.batch import test_pages

EVIL = "##[add-mask]x"
FILES = {**test_pages.FILES, "relu/=1+1.py": "# wrong 2", f"relu/{EVIL}.py": "# crashing 2"}
_COMMAND = re.compile(r"^\s*::|##\[")


@pytest.fixture
def workflow(tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    return tmp_path / "summary.md"


def test_concise(run):
    assert run("report", "run", "--output-format", "concise") == 0
    lines = run.out.splitlines()
    assert len(lines) == 6
    assert lines[2] == "submissions/relu/a.py: correct, 2.98x (2.96x to 3.01x)"
    assert lines[3].startswith("submissions/relu/b.py: wrong_result C405 ")


def test_a_report_ends_with_the_next_step(run, monkeypatch):
    run("report", "run", "--output-format", "json")
    assert "next: " not in run.out
    card = re.fullmatch(r"next: warpgrade show (.*), or warpgrade view run", run.err.splitlines()[-1])[1]
    assert run("show", shlex.split(card)[0]) == 0
    assert not run.out.startswith("✓")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    run("report", "run")
    assert "next: " not in run.err


def test_github_and_json(run):
    run("report", "run", "--output-format", "github")
    lines = run.out.splitlines()
    assert len(lines) == 5
    assert all(re.match(r"::error file=submissions/", line) for line in lines)
    run("report", "run", "--output-format", "json")
    named = run.out
    run("report", "run", "--json")
    assert named == run.out


@pytest.mark.parametrize("ending", ["csv", "json", "parquet"])
def test_a_row_for_each_submission(run, tmp_path, ending):
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    (tmp_path / "run/cards/relu/a.json").unlink()
    path = tmp_path / f"rows.{ending}"
    assert run("report", "run", "--submissions", path) == 0
    if ending == "csv":
        rows = list(csv.DictReader(io.StringIO(path.read_text())))
        assert "'=1+1" in {row["name"] for row in rows}
        return
    if ending == "json":
        rows = json.loads(path.read_text())
    else:
        from pyarrow import parquet

        rows = parquet.read_table(path).to_pylist()
    assert len(rows) == 6
    by_name = {row["name"]: row for row in rows}
    assert by_name["a"]["status"] == "missing"
    assert by_name["a"]["origin"] == "submissions/relu/a.py"
    assert (by_name["b"]["status"], by_name["b"]["reason"], by_name["b"]["built"]) == ("wrong_result", "C405", True)
    assert by_name["=1+1"]["speedup"] is None


def test_rows_in_another_format_are_refused_before_anything_is_read(run, tmp_path):
    assert run("report", "run", "--submissions", "rows.xlsx", "--html", "page.html") == 2
    assert ".csv or .json or .parquet" in run.err
    assert not (tmp_path / "page.html").exists()


def test_junit_has_counts_bodies_and_properties(run, tmp_path):
    run("report", "run", "--junit", "out.xml")
    top = ElementTree.parse(tmp_path / "out.xml").getroot()
    assert [top.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["6", "4", "1", "0"]
    cases = {case.get("name"): case for case in top.iter("testcase")}
    assert "at [0, 3]: expected 0.0, got -0.5123" in cases["b"].find("failure").text
    assert cases["d"].find("error").text.count("Verdict: infra_error") == 1
    properties = {each.get("name"): each.get("value") for each in cases["a"].find("properties")}
    assert properties.keys() == {
        *("speedup", "speedup_low", "speedup_high", "reference_calls", "submission_calls", "host_bound")
    }
    assert properties["submission_calls"] == "single calls"


def test_a_pull_request_shows_reasons_and_folded_feedback(run):
    run("report", "run", "--markdown")
    assert "| `=1+1` | `relu` | wrong\\_result | `C405 call 3: output differs" in run.out
    assert "<details><summary><code>relu/b: wrong_result</code></summary>\n\n```text\nLines that begin" in run.out
    assert run.out.count("<details>") == run.out.count("</details>") == 5
    assert "<script>" not in re.sub(r"(`+).*?\1", "", run.out)


def test_a_workflow_gets_annotations_and_a_summary(run, workflow):
    assert run("report", "run") == 0
    assert run.err.count("::error file=submissions/") == 5
    assert "## Not correct" in workflow.read_text()
    assert not any(_COMMAND.search(line) for line in run.out.splitlines())
    run("report", "run", "--output-format", "github")
    assert "::error" not in run.err
    assert "::error" in run.out
    assert workflow.read_text().count("## Not correct") == 2


def test_outside_of_a_workflow_there_is_neither(run, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    run("report", "run")
    assert "::" not in run.err
    assert not (tmp_path / "summary.md").exists()


def test_a_summary_that_cannot_be_written_is_told(run, workflow, monkeypatch):
    workflow.mkdir()
    assert run("report", "run") == 0
    assert "cannot write the summary of the step" in run.err
    workflow.rmdir()
    workflow.write_bytes(b"x" * 899_999)
    assert run("report", "run") == 0
    assert "the summary of the step is full" in run.err


def test_a_batch_in_a_workflow_obeys_no_submission(run, workflow, worker):
    assert run("batch", "submissions", "--run", "other", "--device", "cpu", "--jsonl") != 0
    assert "add-mask" in run.err
    assert not any(_COMMAND.search(line) for line in [*run.err.splitlines(), *run.out.splitlines()])
    assert EVIL in {json.loads(line).get("name") for line in run.out.splitlines()}
    run("report", "other", "--json")
    assert "##[" not in run.out
