"""`report --kernelbench`: what that benchmark's own analysis reads."""

import itertools
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from evaluator.commands import main as cli
from evaluator.errors import UsageError
from evaluator.files.card_files import read_card
from evaluator.records import Status
from evaluator.report.run.exports import GradedSample, documents
from tests import cards
from tests.batch import fakes

KEYS = {"sample_id", "compiled", "correctness", "metadata", "runtime", "runtime_stats"}
RELU, SOFTMAX, LEVEL_2 = "level1/19_ReLU", "level1/23_Softmax", "level2/1_Conv2D_ReLU_BiasAdd"


def exported(relu=(), softmax=(), level_2=()):
    """Export the cards of each problem, as samples 0, 1, and so on; the last sample comes first."""
    made = [
        GradedSample(problem, f"sample_{number}", card)
        for problem, cards_of in ((RELU, relu), (SOFTMAX, softmax), (LEVEL_2, level_2))
        for number, card in enumerate(cards_of)
    ]
    return documents(reversed(made))


def with_side(**changes):
    """Make a correct card with changes of the submission's samples."""
    timing = cards.timing()
    return cards.card(timing=replace(timing, submission=replace(timing.submission, **changes)))


def timed(**changes):
    return cards.card(timing=cards.timing(**changes))


def test_each_level_has_its_document_and_each_problem_its_samples():
    made = exported([cards.card(), cards.uncompiled_card()], [cards.wrong_card()], [None]).results
    assert {level: list(problems) for level, problems in made.items()} == {1: ["19", "23"], 2: ["1"]}
    right, uncompiled = made[1]["19"]
    (wrong,), (missing,) = made[1]["23"], made[2]["1"]
    entries = (right, uncompiled, wrong, missing)
    assert all(set(entry) == KEYS for entry in entries)
    assert [entry["sample_id"] for entry in entries] == [0, 1, 0, 0]
    assert [entry["compiled"] for entry in entries] == [True, False, True, False]
    assert [entry["correctness"] for entry in entries] == [True, False, False, False]
    times_ms = cards.card().timing.submission.samples_ms
    assert right["runtime"] == right["runtime_stats"]["mean"] == statistics.fmean(times_ms)
    assert right["runtime_stats"]["num_trials"] == len(times_ms)
    assert all(entry["runtime"] == -1.0 and entry["runtime_stats"] == {} for entry in entries[1:])
    assert "compilation_error" in uncompiled["metadata"]
    assert "correctness_issue" in wrong["metadata"]


def test_unwatched_time_is_the_submissions_own_and_no_call_took_no_time():
    (watched, unwatched, short) = exported(
        [cards.card(), with_side(unwatched_ms=1.25), with_side(samples_ms=[0.0, 0.5, 1.0])]
    ).results[1]["19"]
    assert unwatched["runtime"] == pytest.approx(watched["runtime"] + 1.25)
    assert short["runtime_stats"]["mean"] == short["runtime"] == 0.5
    assert "min" not in short["runtime_stats"]


def test_samples_keep_their_numbers_and_others_get_free_ones():
    names = ["sample_1", "mine", "0", "attempt_sample_1", "sample_7"]
    entries = documents(GradedSample(RELU, name, None) for name in names).results[1]["19"]
    assert [entry["sample_id"] for entry in entries] == [0, 1, 2, 3, 7]


def test_nothing_else_is_correct():
    statuses = [each for each in Status if each is not Status.CORRECT]
    entries = exported([cards.wrong_card(status=status) for status in statuses]).results[1]["19"]
    assert [entry["metadata"]["warpgrade_status"] for entry in entries] == statuses
    assert not any(entry["correctness"] for entry in entries)


def test_the_reference_times_of_a_problem_are_those_of_its_first_timed_sample():
    relu = [cards.wrong_card(), timed(reference_ms=3.0), timed(reference_ms=9.0)]
    baseline = exported(relu, [cards.uncompiled_card()], [cards.card()]).baseline
    assert list(baseline) == ["level1", "level2"]
    assert set(baseline["level1"]) == {"19_ReLU.py", "23_Softmax.py"}
    times = baseline["level1"]["19_ReLU.py"]
    assert (times["mean"], times["min"], times["max"], times["num_trials"]) == (
        3.0,
        3.0,
        3.0,
        100,
    )  # 50 before, 50 after
    assert baseline["level1"]["23_Softmax.py"] == {"mean": -1.0}  # in the denominator of their fast_p all the same
    assert baseline["level2"]["1_Conv2D_ReLU_BiasAdd.py"]["mean"] == pytest.approx(1.852)


def test_other_problems_are_left_out_and_counted_and_alone_refused():
    others = [GradedSample("relu", name, None) for name in "ab"]
    with pytest.raises(UsageError, match="relu is not a KernelBench problem"):
        documents(others)
    made = documents([*others, GradedSample(RELU, "sample_0", cards.card())])
    assert (made.left_out, list(made.results), list(made.results[1])) == (2, [1], ["19"])


def test_a_time_without_a_speedup_is_no_time_on_either_side():
    unquoted = timed(speedup=None, significant=None)
    made = exported([unquoted, timed(reference_ms=3.0)], [cards.card()])
    entry = made.results[1]["19"][0]
    assert (entry["correctness"], entry["runtime"], entry["runtime_stats"]) == (True, -1.0, {})
    # The first sample decides whose reference times are there.
    assert made.baseline["level1"]["19_ReLU.py"] == {"mean": -1.0}
    assert made.baseline["level1"]["23_Softmax.py"]["mean"] > 0
    assert made.unquoted == 1


@pytest.fixture
def graded(batch, tmp_path):
    """Grades a run over KernelBench's own layout of files."""
    tree = tmp_path / "theirs/KernelBench"
    for level, name in ((1, "19_ReLU"), (1, "23_Softmax"), (2, "1_Sum")):
        (tree / f"level{level}").mkdir(parents=True, exist_ok=True)
        (tree / f"level{level}/{name}.py").write_text(
            "import torch\nbatch_size = 4\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
            "        return x\ndef get_inputs():\n    return [torch.rand(batch_size)]\n"
            "def get_init_inputs():\n    return []\n"
        )
    submissions = tmp_path / "generated"
    submissions.mkdir()
    for name, text in (
        ("level_1_problem_19_sample_0", "# right"),
        ("level_1_problem_19_sample_1", "# wrong"),
        ("level_1_problem_23_sample_0", "# uncompiled"),
        ("level_2_problem_1_sample_0", "# right "),
    ):
        (submissions / f"{name}_kernel.py").write_text(text)

    def grade(*options):
        assert batch("--problems", tree, "--size", "full", *options, submissions=submissions) == 1

    return grade


def test_the_command_writes_a_file_for_each_level(graded, tmp_path, command):
    graded()
    (tmp_path / "file").write_text("")
    assert command("report", "run", "--kernelbench", "file/below") == 2
    assert "cannot write" in command.err
    assert command("report", "run", "--kernelbench", tmp_path / "runs/mine") == 0
    said = command.err
    assert str(tmp_path / "runs/mine/level1/eval_results.json") in said
    first = json.loads((tmp_path / "runs/mine/level1/eval_results.json").read_text())
    second = json.loads((tmp_path / "runs/mine/level2/eval_results.json").read_text())
    assert {number: len(samples) for number, samples in first.items()} == {"19": 2, "23": 1}
    assert second["1"][0]["correctness"] is True
    baseline = json.loads((tmp_path / "runs/mine/baseline.json").read_text())
    assert {level: list(times) for level, times in baseline.items()} == {
        "level1": ["19_ReLU.py", "23_Softmax.py"],
        "level2": ["1_Sum.py"],
    }
    assert "measures no time" not in said
    assert "skipped: " not in said
    assert "without a speedup" not in said
    assert not list((tmp_path / "runs").glob("**/*.partial"))


def test_on_the_emulator_it_says_that_there_are_no_times(graded, tmp_path, command, monkeypatch):
    monkeypatch.setitem(fakes.MADE, "right", lambda: cards.card(timing=None))
    graded("--device", "emulated")
    folder = tmp_path / "runs/mine"
    folder.mkdir(parents=True)
    (folder / "baseline.json").write_text("{}")  # of an earlier run, elsewhere
    assert command("report", "run", "--kernelbench", folder) == 0
    assert "the run measured no time" in command.err
    entry = json.loads((folder / "level1/eval_results.json").read_text())["19"][0]
    assert (entry["correctness"], entry["runtime"], entry["runtime_stats"]) == (True, -1.0, {})
    assert not (folder / "baseline.json").exists()


OF_A_MODEL = {"openai": "OpenAI = None", "litellm": "completion = None", "dotenv": "def load_dotenv():\n    pass"}
"""What their package imports to ask language models, and its analysis never calls: it need not be installed."""


@pytest.mark.skipif("WARPGRADE_KERNELBENCH" not in os.environ, reason="WARPGRADE_KERNELBENCH names no checkout")
def test_their_own_analysis_says_of_a_run_what_the_report_says(batch, tmp_path, capsys):
    """Every problem of the level has a sample, so that their denominator, the level, is the report's, the run."""
    for module in ("pydra", "tabulate", "tqdm"):
        pytest.importorskip(module, reason=f"their analysis needs {module}: pip install pydra-config tabulate tqdm")
    checkout = Path(os.environ["WARPGRADE_KERNELBENCH"]).resolve().parent
    numbers = sorted(int(path.name.split("_")[0]) for path in checkout.glob("KernelBench/level1/*.py"))
    submissions = tmp_path / "generated"
    submissions.mkdir()
    made = itertools.cycle(["# right", "# wrong", "# right", "# uncompiled", "# right", "# crashing"])
    for number, text in zip(numbers, made, strict=False):
        (submissions / f"level_1_problem_{number}_sample_0_kernel.py").write_text(text)
    batch("--problems", checkout / "KernelBench", "--size", "full", submissions=submissions)
    speedups = itertools.cycle([0.4, 0.6, 0.9, 1.2, 1.7, 2.5])
    for path in sorted((tmp_path / "run/cards").glob("**/*.json")):
        card = read_card(path)
        if card.status is Status.CORRECT:
            timing = cards.timing(reference_ms=3.0, submission_ms=3.0 / next(speedups))
            path.write_bytes(msgspec.json.encode(replace(card, timing=timing)))
    folder = tmp_path / "runs/mine"
    capsys.readouterr()
    assert cli.run(["report", str(tmp_path / "run"), "--json", "--kernelbench", str(folder)]) == 0
    (section,) = json.loads(capsys.readouterr().out)["devices"]
    ours = section["levels"]["1"]

    stubs = tmp_path / "stubs"
    stubs.mkdir()
    for name, text in OF_A_MODEL.items():
        (stubs / f"{name}.py").write_text(text)
    chosen = {
        "run_name": "mine/level1",
        "level": 1,
        "hardware": "any",
        "baseline": "any",
        "baseline_file": folder / "baseline.json",
        "eval_results_dir": folder.parent,
        "output_file": tmp_path / "theirs.json",
    }
    done = subprocess.run(
        [sys.executable, "scripts/benchmark_eval_analysis.py", *(f"{key}={value}" for key, value in chosen.items())],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(stubs), str(checkout / "src"), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stdout
    theirs = json.loads((tmp_path / "theirs.json").read_text())
    assert theirs["total_eval"] == theirs["total_count"] == ours["samples"] == len(numbers)
    assert theirs["compilation_rate"] == ours["built"]["value"]
    assert theirs["correctness_rate"] == ours["correct"]["value"] == 0.5
    assert theirs["geo_mean_speedup"] == pytest.approx(ours["speedup"]["value"])
    assert len(set(theirs["fast_p"].values())) > 4  # the speedups lie on both sides of each p
    for p, share in theirs["fast_p"].items():
        assert share == ours["fast"][f"{float(p):g}"]["value"]
