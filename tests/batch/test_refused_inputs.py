"""Refused inputs of a batch: recorded once, reported everywhere, and counted as not correct."""

import csv
import io
import json
import shutil
from xml.etree import ElementTree as Xml

import msgspec
import pytest

from evaluator.batch.runs.refusals import Refusals, read_refusals
from evaluator.batch.runs.results import read_run, read_runs
from evaluator.batch.runs.run_folder import RunFolder
from evaluator.batch.runs.tasks import Refused, RefusedByCause
from evaluator.errors import CardError, UsageError
from evaluator.report.run.exports import no_formula
from evaluator.report.run.summary import Device, RunSample, sections, summarise

CPU = Device("cpu", "a processor", timed=True)
MIXED = {"relu/a.py": "# right", "relu/b.py": "# wrong", "rleu/c.py": "# right", "README.md": "mine"}


def refused(run):
    return {(each.origin, each.problem, each.level) for each in read_refusals(RunFolder(run))}


@pytest.fixture
def mixed(batch, hand_in, tmp_path, command):
    hand_in(MIXED)
    (tmp_path / "submissions/relu/link.py").symlink_to("a.py")
    assert batch() == 2

    def report(*arguments):
        assert command("report", "run", *arguments) == 0, command.err
        return command.out

    return report


def test_a_refused_input_is_recorded_once_with_its_problem(mixed, batch, tmp_path):
    expected = {
        ("submissions/rleu/c.py", "rleu", None),
        ("submissions/README.md", "", None),
        ("submissions/relu/link.py", "relu", 1),
    }
    assert refused(tmp_path / "run") == expected
    content = (tmp_path / "run/refused.jsonl").read_bytes()
    assert batch() == 2
    assert refused(tmp_path / "run") == expected
    assert [line for line in (tmp_path / "run/refused.jsonl").read_bytes().splitlines() if line] == content.splitlines()


def test_a_name_with_control_characters_is_refused(batch, hand_in, command, tmp_path):
    hand_in({"relu/a.py": "# right", "relu/a\r=1+1;cmd|calc!A0.py": "# right"})
    assert batch() == 2
    assert [each.reason for each in read_refusals(RunFolder(tmp_path / "run"))] == ["its name has control characters"]
    command("report", "run", "--submissions", "rows.csv")
    lines = (tmp_path / "rows.csv").read_bytes()
    assert b"\r" not in lines
    assert len(list(csv.reader(io.StringIO(lines.decode(), newline="")))) == 3


def test_a_refused_input_counts_as_not_correct(mixed):
    (device,) = json.loads(mixed("--json"))["devices"]
    total = device["total"]
    assert (total["samples"], total["correct"]["value"], total["statuses"]["refused"]) == (5, 1 / 5, 3)
    assert total["fast"]["0"]["value"] == 1 / 5
    # A mean over problems has no problem that does not exist.
    assert total["problems"] == 1
    assert list(device["problems"]) == ["relu"]
    assert (device["problems"]["relu"]["samples"], device["levels"]["1"]["samples"]) == (3, 3)
    assert total["pass_at"]["1"]["value"] == pytest.approx(1 / 3)


def test_every_form_of_the_report_has_the_refused_inputs(mixed, tmp_path):
    said = mixed()
    assert "3 refused inputs count as not correct; refused.jsonl" in said
    assert "3 refused, " in said
    (total,) = (row for row in csv.DictReader(io.StringIO(mixed("--csv"))) if row["group"] == "total")
    assert (total["samples"], total["refused"]) == ("5", "3")
    markdown = mixed("--markdown")
    assert "3 refused inputs count" in markdown
    assert "there is no problem named" in markdown
    mixed("--submissions", "rows.csv", "--junit", "junit.xml", "--html", "page.html")
    rows = {row["name"]: row for row in csv.DictReader((tmp_path / "rows.csv").read_text().splitlines())}
    assert (rows["c"]["status"], rows["c"]["problem"], rows["c"]["level"]) == ("refused", "rleu", "")
    assert "symbolic link" in rows["link"]["refusal"]
    assert rows["README.md"]["origin"] == "submissions/README.md"
    junit = Xml.parse(tmp_path / "junit.xml").getroot()
    assert (junit.get("tests"), junit.get("errors"), junit.get("failures")) == ("5", "3", "1")
    assert [each.get("type") for each in junit.iter("error")] == ["refused"] * 3
    page = (tmp_path / "page.html").read_text()
    assert page.count('data-kind="refused"') == 4  # a chip and three rows
    assert "in no problem&#39;s folder" in page
    concise = mixed("--output-format", "concise")
    assert "submissions/README.md: refused: it lies in no problem's folder" in concise
    assert "title=README.md%3A refused::it lies" in mixed("--output-format", "github")


@pytest.fixture
def refusals_alone(tmp_path, command, batch, hand_in):
    """Command of a run whose cards are gone, with three refused inputs of one cause and one of another."""
    hand_in({"relu/a.py": "# right"})
    assert batch() == 0
    shutil.rmtree(tmp_path / "run/cards")
    (tmp_path / "run/plan.jsonl").write_text("")
    with Refusals(RunFolder(tmp_path / "run"), lambda _: False) as refusals:
        for number in (19, 2, 3):
            reason = f"there is no problem named 'level1/{number}'; add --problems DIR"
            refusals.add(Refused(f"runs/{number}.py", reason, f"level1/{number}", "sample_0"))
        refusals.add(Refused("runs/notes.txt", "it lies in no problem's folder", name="notes.txt"))
    return command


def test_a_run_of_refusals_alone_has_every_form_of_a_report(refusals_alone):
    files = ("--html", "page.html", "--junit", "junit.xml", "--submissions", "rows.csv")
    for form in (files, ("--markdown",), ("--csv",), ("--json",), ("--output-format", "concise")):
        assert refusals_alone("report", "run", *form) == 0
        assert "Traceback" not in refusals_alone.err
    refusals_alone("report", "run")
    lines = " ".join(refusals_alone.out.partition("Not correct\n")[2].split()).split("✗ ")[1:]
    assert [line.strip() for line in lines] == [
        "level1/19/sample_0 refused there is no problem named 'level1/19'; add --problems DIR; 2 more inputs like this",
        "notes.txt refused it lies in no problem's folder",
    ]


def test_equal_refusals_are_one_line_of_a_batch_and_a_count(batch, hand_in):
    hand_in({"relu/a.py": "# right"} | {f"level1/{number}_X/a.py": "# right" for number in range(30)})
    assert batch() == 2
    (first, rest) = (line for line in batch.err.splitlines() if line.startswith("refused"))
    assert first.startswith("refused submissions/level1/0_X/a.py: there is no problem named 'level1/0_X'; ")
    assert rest == "refused 29 more like submissions/level1/0_X/a.py"
    assert sum(line["type"] == "refused" for line in batch.lines) == 30


def test_a_stream_of_causes_without_end_takes_limited_memory():
    causes = RefusedByCause()
    for number in range(5000):
        causes.add(Refused(f"x:{number}", f"reason {number}"))
    assert len(causes.lines) <= 101
    assert causes.lines[-1].startswith("4900 inputs: ")


def test_a_run_in_which_nothing_can_be_graded_does_not_begin(batch, hand_in, tmp_path):
    hand_in({f"level_1_problem_{number}_sample_0_kernel.py": "# right" for number in range(1, 35)})
    assert batch() == 2
    (said,) = (line for line in batch.err.splitlines() if "no problem" in line)
    assert said.strip().startswith("hint: 34 inputs: there is no problem named 'level1/10'; ")
    assert "--problems DIR" in said
    assert "warpgrade problems get kernelbench" in said
    assert not (tmp_path / "run").exists()


def test_a_stream_in_which_nothing_can_be_graded_begins_no_run(batch, tmp_path, monkeypatch):
    lines = b'junk\n{"problem": "rleu", "sample": 0, "source": ""}'
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines)))
    assert batch(submissions="-") == 2
    assert not (tmp_path / "run").exists()
    assert "stdin:1: the line is not a submission" in batch.err


def test_a_begun_run_keeps_its_cards_where_nothing_can_be_graded_any_more(batch, hand_in, tmp_path):
    hand_in({"relu/a.py": "# right"})
    assert batch() == 0
    (tmp_path / "submissions/relu").rename(tmp_path / "submissions/rleu")
    assert batch("--fresh") == 2
    assert (tmp_path / "run/cards/relu/a.json").exists()


def test_the_folder_of_two_runs_of_kernelbench_is_two_runs(batch, hand_in, tmp_path):
    hand_in({f"{run}/level_1_problem_19_sample_0_kernel.py": f"# right {run}" for run in ("A", "B")})
    assert batch() == 2
    assert "several runs of KernelBench" in batch.err
    assert "warpgrade batch submissions/A --run A, and warpgrade batch submissions/B --run B" in batch.err
    assert not (tmp_path / "run").exists()


def test_a_mended_input_is_not_refused_any_more(mixed, batch, tmp_path):
    (tmp_path / "submissions/README.md").unlink()
    (tmp_path / "submissions/rleu/c.py").rename(tmp_path / "submissions/relu/c.py")
    assert batch("--limit", 1) == 0
    assert len(refused(tmp_path / "run")) == 3  # the limited session has not read all
    assert batch() == 2
    assert refused(tmp_path / "run") == {("submissions/relu/link.py", "relu", 1)}


def test_a_session_of_some_problems_keeps_the_refusals_of_the_others(mixed, batch, hand_in, tmp_path):
    hand_in({"softmax/a.py": "# right"})
    assert batch("--only", "softmax") == 0
    assert len(refused(tmp_path / "run")) == 3
    (tmp_path / "submissions/relu/link.py").unlink()
    assert batch("--only", "relu") == 1
    assert ("submissions/relu/link.py", "relu", 1) not in refused(tmp_path / "run")
    assert len(refused(tmp_path / "run")) == 2


def test_lines_of_a_stream_are_known_by_place_and_content(batch, tmp_path, monkeypatch):
    def stream(*lines):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\n".join(lines).encode())))
        return batch(submissions="-")

    right, unknown = (
        json.dumps({"problem": name, "sample": 0, "source": "# right"}) for name in ("relu", "rleu" + "x" * 5000)
    )
    assert stream(right, "nonsense", unknown) == 2
    assert stream(right, "nonsense", unknown) == 2
    assert len(refused(tmp_path / "run")) == 2
    assert stream("other nonsense", right) == 2
    assert {each[0] for each in refused(tmp_path / "run")} == {"stdin:1", "stdin:2", "stdin:3"}
    assert all(len(each.problem) <= 200 for each in read_refusals(RunFolder(tmp_path / "run")))
    names = [(entry.sample.problem, entry.sample.name) for entry in read_run(tmp_path / "run").entries]
    assert len(set(names)) == 4


def test_a_file_that_was_refused_before_an_interruption_counts_once(batch, hand_in, tmp_path):
    hand_in({"relu/a.py": "# right"})
    assert batch() == 0
    folder = RunFolder(tmp_path / "run")
    with Refusals(folder, lambda _: True) as refusals:
        refusals.add(Refused("submissions/relu/a.py", "it was not readable", "relu", "a", 1))
        refusals.add(Refused("submissions/relu/b.py", "it was not readable", "relu", "b", 1))
    assert [each.status_text for each in read_run(folder.path).samples] == ["correct", "refused"]


def test_a_cut_line_is_written_again(tmp_path):
    folder = RunFolder(tmp_path)
    one, two = Refused("a", "why"), Refused("b", "why")
    with Refusals(folder, lambda _: True) as refusals:
        refusals.add(one)
        refusals.add(two)
    folder.refused.write_bytes(folder.refused.read_bytes()[:-5])
    assert read_refusals(folder) == [one]
    with Refusals(folder, lambda _: True) as refusals:
        refusals.add(one)
        refusals.add(two)
        refusals.complete()
    assert read_refusals(folder) == [one, two]


@pytest.mark.parametrize(
    ("name", "module", "limit", "hint"),
    [
        ("refused.jsonl", "refusals", "_MAX_BYTES", "remove the file"),
        ("plan.jsonl", "run_folder", "_MAX_PLAN_BYTES", "--shard"),
    ],
)
def test_a_file_beyond_its_limit_is_refused_and_not_cut(
    mixed, tmp_path, monkeypatch, command, name, module, limit, hint
):
    path = tmp_path / "run" / name
    content = path.read_bytes()
    path.write_bytes(b"\n" * ((1 << 20) - len(content)) + content)
    monkeypatch.setattr(f"evaluator.batch.runs.{module}.{limit}", 1 << 20)
    assert len(read_run(tmp_path / "run").entries) == 5
    path.write_bytes(b"\n" + path.read_bytes())
    assert command("report", "run") != 0
    assert f"{name} is larger than 1 MiB" in command.err
    assert hint in command.err
    assert "Traceback" not in command.err


def test_empty_lines_are_skipped(tmp_path):
    content = b"\n" * 1000 + b'{"origin":"a","reason":"b"}\r\n \n\t\nx\n'
    (tmp_path / "refused.jsonl").write_bytes(content)
    assert read_refusals(RunFolder(tmp_path)) == [Refused("a", "b")]


def test_a_line_with_an_impossible_level_is_not_read(tmp_path):
    levels = (1, None, 999_999_999, -1, 10**9, 10**30)
    lines = [{"origin": str(level), "reason": "b", "level": level} for level in levels]
    (tmp_path / "refused.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    assert {each.level for each in read_refusals(RunFolder(tmp_path))} == {1, None, 999_999_999}


@pytest.mark.parametrize("text", ["\x00=1", "\ufeff=1+1", "\x1b=1", "\x9b \x00+1", "\ufeff\t=1", "\x00\n1"])
def test_a_formula_behind_control_characters_is_quoted(text):
    assert no_formula(text) == "'" + text.translate(dict.fromkeys(map(ord, "\x00\x1b\x9b\ufeff")))


def test_rows_have_no_control_characters_of_a_refusal(mixed, tmp_path):
    hostile = Refused("x", "\x1b]0;title\x07said\x00\ufeff", "=1", "\x00=2")
    (tmp_path / "run/refused.jsonl").write_bytes(msgspec.json.encode(hostile) + b"\n")
    mixed("--submissions", "rows.csv")
    content = (tmp_path / "rows.csv").read_bytes()
    assert not any(byte < 32 and byte != ord("\n") for byte in content)
    (row,) = (row for row in csv.DictReader(io.StringIO(content.decode())) if row["status"] == "refused")
    assert (row["refusal"], row["problem"], row["name"]) == ("]0;titlesaid", "'=1", "'=2")


def test_a_link_in_place_of_the_file_is_not_written(tmp_path):
    (tmp_path / "refused.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CardError, match="a symbolic link"):
        Refusals(RunFolder(tmp_path), lambda _: True)
    assert not (tmp_path / "elsewhere").exists()


def test_shards_keep_the_refused_inputs(mixed, batch, tmp_path):
    for number in (1, 2):
        assert batch("--shard", f"{number}/2", "--run", f"part{number}") in (0, 1, 2)
    both = read_runs([tmp_path / "part1", tmp_path / "part2"])
    assert sum(each.is_refused for each in both.samples) == 3


def test_without_any_card_the_refused_inputs_are_all_there_is():
    (section,) = sections([RunSample("", None, "a", None, None, is_refused=True)], CPU)
    assert (section.total.samples, section.total.problems, section.levels) == (1, 0, {})
    assert section.total.correct.value == 0.0
    assert summarise([], timed=True).correct is None


@pytest.mark.parametrize(
    ("place", "message", "hint"),
    [
        ("submissions/relu", "submissions to the problem relu", "--only relu --run"),
        ("submissions/nothing", "in no problem's folder", "PROBLEM/NAME.py"),
        ("submissions/relu/several", "a single submission", "warpgrade grade"),
    ],
)
def test_a_single_problems_folder_makes_no_run(batch, hand_in, tmp_path, place, message, hint):
    hand_in(
        {"relu/a.py": "# right", "nothing/b.py": "# right", "relu/several/submission.toml": "", "relu/several/x.py": ""}
    )
    assert batch(submissions=place) == 2
    assert message in batch.err
    assert hint in batch.err
    assert not (tmp_path / "run").exists()


def test_two_runs_with_the_same_submission_are_not_one_run(batch, hand_in, tmp_path):
    hand_in({"relu/a.py": "# right"})
    assert batch() == 0
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    with pytest.raises(UsageError, match="two runs contain relu/a"):
        read_runs([tmp_path / "run", tmp_path / "copy"])
    with pytest.raises(UsageError, match="a run is named twice"):
        read_runs([tmp_path / "run", tmp_path / "copy" / ".." / "run"])
