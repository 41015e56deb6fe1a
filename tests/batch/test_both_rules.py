"""KernelBench's rule beside Warpgrade's in a report: both numbers, and the submissions on which they disagree."""

import io
import json
import re

import pytest
from msgspec.structs import replace
from rich.console import Console

from evaluator.files.card_files import read_card, write_card
from evaluator.records import Status
from evaluator.report.page.pages import RunPage, run_page
from evaluator.report.run.intervals import share
from evaluator.report.run.run_tables import described, document, markdown, render
from evaluator.report.run.several_runs import NamedRun, rates
from evaluator.report.run.summary import RunSample, sections
from tests.batch.samples import EMULATED, GPU, sample

LEAST = "its fast_p is a lower bound"


def judged(name, status, opinion, speedup=None, *, problem="level1/1_X", **more):
    return sample(name, speedup, status, problem=problem, level=int(problem[5]), **more, benchmark_correct=opinion)


SAMPLES = [
    judged("fast", Status.CORRECT, True, speedup=3.0),
    judged("refused", Status.CORRECT, False, speedup=1.2),
    judged("slow", Status.CORRECT, True, speedup=0.7),
    judged("old", Status.CORRECT, None, speedup=1.7),
    judged("biased", Status.WRONG_RESULT, True, reason="C405"),
    judged("in_tf32", Status.WRONG_RESULT, True, reason="C414"),
    judged("wrong", Status.WRONG_RESULT, False, reason="C405"),
    judged("crashed", Status.RUNTIME_ERROR, None, reason="R302"),
    RunSample("level2/1_X", 2, "missing", None, None),
    judged("shared", Status.REJECTED, True, reason="R314", problem="level2/1_X"),
]


def section(samples=SAMPLES, device=GPU, level_sizes=None):
    (made,) = sections(samples, device, level_sizes)
    return made


def shown(made, width=80):
    stream = io.StringIO()
    render([made], Console(file=stream, width=width))
    return stream.getvalue()


def test_a_card_without_an_opinion_counts_alike_by_both_rules():
    made = section()
    assert made.total.correct == share(4, 10)
    assert made.by_benchmark.total.correct == share(6, 10)
    assert made.by_benchmark.total.statuses == {"correct": 6, "wrong_result": 2, "runtime_error": 1, "missing": 1}
    assert made.by_benchmark.by_benchmark is None
    fast = made.by_benchmark.total.fast  # What KernelBench's rule alone accepts has no time.
    assert [fast[p].value for p in (0.0, 0.5, 0.8, 1.0, 1.5, 2.0, 3.0)] == [0.6, 0.3, 0.2, 0.2, 0.2, 0.1, 0.0]


def test_the_report_has_both_numbers_and_names_what_differs():
    text = shown(section())
    assert "Correct by KernelBench's rule: 6, by Warpgrade's: 4." in text
    assert LEAST in " ".join(text.split())
    rows = re.findall(r"(?m)^(level\S+) +(correct|wrong) +(\w+) +(\S+)$", text)
    assert rows == [
        ("level1/1_X/biased", "correct", "wrong_result", "C405"),
        ("level1/1_X/in_tf32", "correct", "wrong_result", "C414"),
        ("level2/1_X/shared", "correct", "rejected", "R314"),
        ("level1/1_X/refused", "wrong", "correct", "-"),
    ]
    assert re.search(r"(?m)^all +KernelBench +60.0 % +20.0 % +20.0 % +10.0 %$", text)
    assert re.search(r"(?m)^all +Warpgrade +40.0 % +30.0 % +20.0 % +10.0 %$", text)
    assert re.search(r"(?m)^level 1 +KernelBench +62.5 % ", text)
    assert max(map(len, text.splitlines())) <= 80


def test_the_rates_of_a_whole_level_are_there_by_both_rules():
    text = shown(section(level_sizes={1: 100, 2: 1}))
    assert re.search(r"(?m)^level 1, all +KernelBench +0.6 % +0.2 % ", text)
    assert "level 2, all" not in text
    assert section(level_sizes={1: 100}).by_benchmark.whole_levels[1].correct == share(5 / 8, 100)


@pytest.mark.parametrize("opinion", [None, True])
def test_rules_that_agree_have_a_sentence_and_rules_without_an_opinion_nothing(opinion):
    made = section([judged("right", Status.CORRECT, opinion, speedup=2.0)])
    text = shown(made)
    assert ("Correct by KernelBench's rule: 1, by Warpgrade's: 1." in text) is (opinion is not None)
    assert text.count("KernelBench") == (opinion is not None)
    assert (made.disputed, made.by_benchmark is None) == ([], opinion is None)


def test_without_a_clock_no_table_speaks_of_speed():
    text = shown(section([judged("biased", Status.WRONG_RESULT, True, reason="C405", device=EMULATED)], EMULATED))
    assert "Correct by KernelBench's rule: 1, by Warpgrade's: 0." in text
    assert LEAST not in " ".join(text.split())
    assert "fast_1" not in text


def test_documents_have_both_rules():
    made = json.loads(json.dumps(document([section(level_sizes={1: 100})])))["devices"][0]
    assert made["by_benchmark"]["total"]["correct"]["value"] == 0.6
    assert made["by_benchmark"]["total"]["fast"]["1"]["value"] == 0.2
    assert made["by_benchmark"]["whole_levels"]["1"]["correct"]["value"] == 0.00625
    assert document([section(SAMPLES[3:4])])["devices"][0]["by_benchmark"] is None
    assert made["disputed"][0] == {
        "problem": "level1/1_X",
        "name": "biased",
        "status": "wrong_result",
        "reason": "C405",
        "benchmark_correct": True,
    }
    assert "| `level1/1_X/in_tf32` | correct | wrong_result | C414 |" in markdown([section()])


def test_the_page_has_both_rules_at_once_and_names_are_text():
    hostile = judged("<script>alert(1)</script>", Status.WRONG_RESULT, True, reason="C405")
    made = section([hostile, *SAMPLES])
    assert [table.title for table in described(made).tables] == ["By both rules", "Where the rules disagree"]
    page = b"".join(run_page(RunPage("run", [made]), [])).decode()
    assert "by KernelBench&#39;s rule: 7, by Warpgrade&#39;s: 4." in page
    assert "&lt;script&gt;alert(1)" in page
    assert "<script>alert(1)" not in page


def test_of_many_disputed_submissions_the_first_are_listed():
    made = section([judged(f"sample_{number}", Status.WRONG_RESULT, True, reason="C405") for number in range(30)])
    text = shown(made)
    assert "and 10 more; --json lists all" in text
    assert len(re.findall(r"(?m)^level1/1_X/sample_\d+ ", text)) == 20
    assert len(document([made])["devices"][0]["disputed"]) == 30


def test_several_runs_have_a_table_by_benchmarks_rule():
    agreed = NamedRun("A", section([judged("right", Status.CORRECT, None, speedup=2.0)]), [2.0])
    assert [table.title for table in rates([agreed, agreed])] == ["Correct", "Fast"]
    table = rates([agreed, NamedRun("B", section(), [])])[-1]
    assert table.title == "By KernelBench's rule"
    assert table.rows[0][:2] == ["A", "100.0 %"]
    assert table.rows[1] == ["B", "60.0 %", "31.3 % to 83.2 %", "20.0 %", "10.0 %"]


def test_a_run_reports_what_its_cards_say(batch, hand_in, tmp_path, command):
    hand_in({"relu/a.py": "# right", "relu/b.py": "# wrong", "relu/c.py": "# crashing"})
    batch()
    for name in "ab":
        path = tmp_path / f"run/cards/relu/{name}.json"
        card = read_card(path)
        judged = replace(card, checks=[replace(card.checks[0], benchmark_ok=True), *card.checks[1:]])
        write_card(replace(judged, benchmark_correct=True), path)
    for _ in range(2):  # The second report has the rows of the index.
        assert command("report", "run", "--submissions", "rows.json") == 0
        assert "Correct by KernelBench's rule: 2, by Warpgrade's: 1." in command.out
        assert re.search(r"(?m)^relu/b +correct +wrong_result +C405$", command.out)
    rows = {row["name"]: row["benchmark_correct"] for row in json.loads((tmp_path / "rows.json").read_text())}
    assert rows == {"a": True, "b": True, "c": None}
