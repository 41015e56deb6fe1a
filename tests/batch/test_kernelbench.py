"""`report --kernelbench`: what that benchmark's own analysis reads."""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

import cli
from evaluator.errors import UsageError
from evaluator.records import Status
from evaluator.report.batch_kernelbench import Graded, documents
from tests import cards
from tests.batch.test_session import batch  # noqa: F401 - a fixture

KEYS = {"sample_id", "compiled", "correctness", "metadata", "runtime", "runtime_stats"}
RELU, SOFTMAX, LEVEL_2 = "level1/19_ReLU", "level1/23_Softmax", "level2/1_Conv2D_ReLU_BiasAdd"


def test_each_level_has_its_document_and_each_problem_its_samples():
    given = [
        Graded(SOFTMAX, "sample_0", cards.wrong_card()),
        Graded(RELU, "sample_1", cards.uncompiled_card()),
        Graded(RELU, "sample_0", cards.card()),
        Graded(LEVEL_2, "sample_0", None),
    ]
    made = documents(given)
    assert list(made) == [1, 2]
    assert list(made[1]) == ["19", "23"]
    right, uncompiled = made[1]["19"]
    (wrong,), (missing,) = made[1]["23"], made[2]["1"]
    assert all(set(entry) == KEYS for entry in (right, uncompiled, wrong, missing))
    assert [entry["sample_id"] for entry in (right, uncompiled, wrong, missing)] == [0, 1, 0, 0]
    assert [entry["compiled"] for entry in (right, uncompiled, wrong, missing)] == [True, False, True, False]
    assert [entry["correctness"] for entry in (right, uncompiled, wrong, missing)] == [True, False, False, False]
    times_ms = cards.card().timing.submission.samples_ms
    assert right["runtime"] == right["runtime_stats"]["mean"] == statistics.fmean(times_ms)
    assert right["runtime_stats"]["num_trials"] == len(times_ms)
    assert all(entry["runtime"] == -1.0 and entry["runtime_stats"] == {} for entry in (uncompiled, wrong, missing))
    assert "compilation_error" in uncompiled["metadata"]
    assert "correctness_issue" in wrong["metadata"]


def test_samples_keep_their_numbers_and_others_get_free_ones():
    names = ["sample_1", "mine", "0", "attempt_sample_1", "sample_7"]
    entries = documents(Graded(RELU, name, None) for name in names)[1]["19"]
    assert [entry["sample_id"] for entry in entries] == [0, 1, 2, 3, 7]


@pytest.mark.parametrize("status", [each for each in Status if each is not Status.CORRECT])
def test_nothing_else_is_correct(status):
    (entry,) = documents([Graded(RELU, "sample_0", cards.wrong_card(status=status))])[1]["19"]
    assert entry["correctness"] is False
    assert entry["metadata"]["warpgrade_status"] == status.value


def test_other_problems_are_refused():
    with pytest.raises(UsageError, match="relu is no problem of KernelBench's"):
        documents([Graded("relu", "a", None)])


@pytest.fixture
def run(batch, tmp_path):  # noqa: F811 - the fixture
    """A run over KernelBench's own layout of files."""
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
    assert batch("--problems", tree, "--size", "full", submissions=submissions) == 1
    return tmp_path / "run"


def test_the_command_writes_a_file_for_each_level(run, tmp_path, capsys):
    assert cli.run(["report", str(run), "--kernelbench", str(tmp_path / "runs/mine")]) == 0
    said = capsys.readouterr().err
    assert str(tmp_path / "runs/mine/level1/eval_results.json") in said
    first = json.loads((tmp_path / "runs/mine/level1/eval_results.json").read_text())
    second = json.loads((tmp_path / "runs/mine/level2/eval_results.json").read_text())
    assert {number: len(samples) for number, samples in first.items()} == {"19": 2, "23": 1}
    assert second["1"][0]["correctness"] is True
    assert not list((tmp_path / "runs").glob("**/*.partial"))


def test_a_place_that_cannot_be_written_is_told(run, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert cli.run(["report", str(run), "--kernelbench", str(tmp_path / "file/below")]) == 2
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.skipif("WARPGRADE_KERNELBENCH" not in os.environ, reason="WARPGRADE_KERNELBENCH names no checkout")
def test_their_own_analysis_reads_it(tmp_path):
    """Their script wants a reference time for each problem of the level, and takes a file of ours for it."""
    checkout = Path(os.environ["WARPGRADE_KERNELBENCH"]).resolve()
    while not (checkout / "scripts").is_dir():
        checkout = checkout.parent
    files = sorted(checkout.glob("KernelBench/level1/*.py"), key=lambda path: int(path.name.split("_")[0]))
    given = [Graded(f"level1/{path.stem}", "sample_0", cards.card()) for path in files]
    eval_results, baseline = tmp_path / "runs/level1/eval_results.json", tmp_path / "baseline.json"
    eval_results.parent.mkdir(parents=True)
    eval_results.write_text(json.dumps(documents(given)[1]))
    baseline.write_text(json.dumps({"level1": {path.name: {"mean": 1.0} for path in files}}))
    script = checkout / "scripts/benchmark_eval_analysis.py"
    options = ["run_name=level1", "level=1", "hardware=any", "baseline=any", f"baseline_file={baseline}"]
    done = subprocess.run(
        [sys.executable, str(script), *options, f"eval_results_dir={tmp_path / 'runs'}"],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": f"{checkout}/src:{checkout}"},
        capture_output=True,
        text=True,
        check=False,
    )
    if "ModuleNotFoundError" in done.stderr:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr
    assert f"correct: {len(files)}" in done.stdout
