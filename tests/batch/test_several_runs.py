"""Several runs in one table: rates, problems by runs, the page; and the shards of a batch, which are one run."""

import io
import json
import re
import shutil

import pytest
from rich.console import Console

from evaluator.batch.runs.problems import Problems
from evaluator.records import SizeName, Status
from evaluator.report.page.pages import runs_page
from evaluator.report.run.several_runs import NamedRun, by_problem, rates, render_runs, runs_markdown, runs_tables
from evaluator.report.run.summary import Device, sections
from tests.batch.samples import EMULATED, GPU, sample
from tests.batch.test_inputs import KERNELBENCH
from tests.unit.report.page.reader import Reader


def run(name, device=GPU, level_sizes=None, **problems):
    """Make a run: `relu=[2.0, None]` has a correct sample with speedup 2 and a wrong one."""
    samples = [
        sample(
            *(f"sample_{number}", speedup if device.timed else None),
            Status.WRONG_RESULT if speedup is None else Status.CORRECT,
            problem=problem,
            device=device,
        )
        for problem, speedups in problems.items()
        for number, speedup in enumerate(speedups)
    ]
    (section,) = sections(samples, device, level_sizes)
    return NamedRun(name, section, [each for speedups in problems.values() for each in speedups if each is not None])


A = run("A", relu=[2.0], softmax=[None], gelu=[1.0, 4.0])
B = run("B", relu=[None], softmax=[None], cumsum=[3.0])


def test_each_run_has_a_row_with_its_rates_and_intervals():
    correct, fast = rates([A, B])
    assert correct.rows == [
        ["A", "4", "3", "100.0 %", "75.0 %", "30.1 % to 95.4 %"],
        ["B", "3", "3", "100.0 %", "33.3 %", "6.1 % to 79.2 %"],
    ]
    assert [row[:3] for row in fast.rows] == [["A", "50.0 %", "25.0 %"], ["B", "33.3 %", "33.3 %"]]


def test_a_problem_has_the_result_of_each_run():
    assert [tuple(each) for each in by_problem([A, B])] == [
        ("cumsum", ["-", "3.00x"], "differs"),
        ("gelu", ["2/2 2.00x", "-"], "differs"),
        ("relu", ["2.00x", "wrong_result"], "differs"),
        ("softmax", ["wrong_result", "wrong_result"], "none correct"),
    ]
    assert by_problem([A, A])[1].kind == "all correct"
    half = run("C", relu=[1.0, None])
    assert by_problem([half, half])[0].kind == "same"


def test_without_a_clock_no_table_speaks_of_speed():
    untimed = [run(name, EMULATED, relu=[1.0]) for name in "AB"]
    assert [made.title for made in rates(untimed)] == ["Correct"]
    assert by_problem(untimed)[0].results == ["correct", "correct"]


def test_whole_levels_of_each_run_are_shown():
    sized = [run(name, GPU, {1: 100}, relu=[2.0]) for name in "AB"]
    made = rates(sized)[-1]
    assert made.title.startswith("Of all problems of a level")
    assert [row[:3] for row in made.rows] == [[f"{name}: level 1", "1 of 100", "1.0 %"] for name in "AB"]

    untimed = [run(name, EMULATED, {1: 100}, relu=[2.0]) for name in "AB"]
    assert rates(untimed)[-1].header == ["", "tried", "correct", "95 % interval"]


def test_a_long_name_of_a_run_leaves_room_for_the_others():
    long = "a-model-with-a-very-long-name-2026-11-29"
    *_, grid = runs_tables([A._replace(name=long), B])
    assert max(map(len, grid.header)) <= 16
    assert runs_tables([A._replace(name=long), B])[0].rows[0][0] == long


def test_the_page_has_one_curve_for_each_timed_run_and_a_row_for_each_problem():
    page = b"".join(runs_page([A, B])).decode()
    assert re.findall(r'<polyline class="(curve c\d)"', page) == ["curve c0", "curve c1"]
    assert len(re.findall(r"<tbody id=\"p/", page)) == 4
    assert "fast_p of each run" not in b"".join(runs_page([run("A", EMULATED, relu=[1.0])] * 2)).decode()


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "\u202ex\x1b[2J"])
def test_a_hostile_name_is_text(name):
    page = b"".join(runs_page([A._replace(name=name), B])).decode()
    reader = Reader(page)
    assert [tag for tag, _ in reader.tags].count("script") == 1
    assert "img" not in {tag for tag, _ in reader.tags}
    assert "\x1b" not in page


def test_a_hostile_device_is_text_on_a_terminal_and_in_markdown():
    hostile = Device("cuda", "a\x1b[2J <img src=x> [b](http://c)", timed=True)
    runs = [run(name, hostile, relu=[2.0]) for name in ("A", "B")]
    drawn = io.StringIO()
    render_runs(runs, Console(file=drawn, width=80))
    assert "\x1b" not in drawn.getvalue()
    title = runs_markdown(runs).partition("\n")[0]
    assert "<img" not in title
    assert "\\[b\\](" in title


@pytest.fixture
def two(batch, hand_in, tmp_path, command):
    """Command after the batches of two models, whose submissions have the same names."""
    for model, what in (("A", "right"), ("B", "wrong")):
        hand_in({"relu/s.py": f"# {what}", "softmax/s.py": "# right"})
        (tmp_path / "submissions").rename(tmp_path / f"subs{model}")
        batch("--run", model, submissions=f"subs{model}")
    return command


def test_runs_of_other_submissions_are_one_table(two, tmp_path):
    assert two("report", "A", "B") == 0
    assert "cpu (a processor): 2 runs" in two.out
    assert re.search(r"(?m)^A +2 +2 +100.0 % +100.0 % ", two.out)
    assert re.search(r"(?m)^B +2 +2 +100.0 % +50.0 % ", two.out)
    assert re.search(r"(?m)^relu +2.98x +wrong_result$", two.out)
    assert "next: warpgrade compare A B" in two.err
    assert two("report", "A", "B", "--json") == 0
    assert [each["name"] for each in json.loads(two.out)["runs"]] == ["A", "B"]
    assert two("report", "A", "B", "--markdown") == 0
    assert "| `relu` | 2.98x | wrong_result |" in two.out
    assert two("report", "A", "B", "--html", "page.html") == 0
    assert (tmp_path / "page.html").read_text().count("<tbody id=") == 2


def test_an_option_of_one_run_is_refused_for_several(two):
    for option in (("--csv",), ("--junit", "x"), ("--output-format", "concise"), ("--kernelbench", "x")):
        assert two("report", "A", "B", *option) == 2
        assert option[0] in two.err
        assert "is for a single run" in two.err


def test_disjoint_runs_of_other_places_are_not_taken_for_shards(two, batch, hand_in, tmp_path):
    hand_in({"gelu/s.py": "# right"})
    batch("--run", "C")
    assert two("report", "A", "C") == 0
    assert "2 runs" in two.out
    assert re.search(r"(?m)^gelu +- +2.98x$", two.out)


def test_the_shards_of_a_batch_are_one_run(batch, hand_in, command):
    hand_in({f"relu/{number}.py": f"# right {number}" for number in range(8)})
    for number in (1, 2):
        batch("--run", f"part{number}", "--shard", f"{number}/2")
    assert command("report", "part1", "part2") == 0
    assert "8 submissions to 1 problem" in command.out


def test_two_runs_of_one_name_are_told_apart_by_their_paths(two, tmp_path):
    shutil.move(tmp_path / "B", tmp_path / "other" / "A")
    assert two("report", "A", "other/A") == 0
    assert re.search(r"(?m)^other/A +2 ", two.out)


def test_a_batch_counts_the_problems_of_kernelbenchs_levels(batch, hand_in, tmp_path, command):
    for level, number in ((1, 1), (1, 2), (1, 3), (2, 1)):
        path = tmp_path / f"kb/level{level}/{number}_X.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(KERNELBENCH)
    hand_in({"level_1_problem_2_sample_0_kernel.py": "# right", "level_1_problem_2_sample_0_prompt.txt": "write"})
    assert batch("--problems", "kb", "--size", "full") == 0
    assert json.loads((tmp_path / "run/manifest.json").read_text())["level_sizes"] == {"1": 3, "2": 1}
    assert command("report", "run") == 0
    assert re.search(r"(?m)^level 1 \(1 of 3 tried\) +33.3 % ", command.out)
    assert re.search(r"(?m)^level 1 +1 +100.0 % +100.0 % ", command.out)


def test_shipped_problems_are_no_levels_of_kernelbench():
    assert Problems(None, (SizeName.SMALL,)).level_sizes == {}


def test_compare_has_the_rates_of_both_runs(two, tmp_path):
    assert two("compare", "A", "B", "--html", "page.html") == 0
    assert re.search(r"(?m)^A +2 +2 +100.0 % +100.0 % ", two.out)
    assert re.search(r"(?m)^B +2 +2 +100.0 % +50.0 % ", two.out)
    assert '<td data-label="correct">50.0 %</td>' in (tmp_path / "page.html").read_text()
    assert two("compare", "A", "B", "--json") == 0
    assert [each["total"]["correct"]["value"] for each in json.loads(two.out)["runs"]] == [1.0, 0.5]
