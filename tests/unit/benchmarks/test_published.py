"""Published kernels become the lines of a batch, and the cards of their runs become tables."""

import json

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from benchmarks.published.arrange import main
from benchmarks.published.kernel_collections import Collection, kernels_of
from benchmarks.published.verdicts import differences, table
from benchmarks.published.verdicts import kernels_of as grades_of
from evaluator.batch.runs.inputs import read_lines
from evaluator.batch.runs.problems import Problems
from evaluator.findings import Code, finding
from evaluator.records import SizeName
from tests import cards


def put(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if isinstance(text, str) else json.dumps(text))


def l1(task, source):
    return json.dumps({"level_id": "1", "task_id": task, "custom_code": source, "ref_code": f"problem {task}"})


PROBLEM = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.randn(4, 4)]

def get_init_inputs():
    return []
"""
CLONES = {
    Collection.LEADERBOARD: {
        "docs/assets/data.json": {
            "Level 1: 19_ReLU": [{"file": "aa"}, {"file": "bb"}],
            "Level 2: 3_X": [{"file": "cc"}],
        },
        "docs/assets/problems/l1_p19.py": PROBLEM,
        "docs/assets/problems/l2_p3.py": PROBLEM,
        "docs/assets/solutions/aa.py": "first = 1",
        "docs/assets/solutions/bb.py": "second = 2",
        "docs/assets/solutions/cc.py": "third = 3",
        "docs/assets/solutions/dd.py": "not listed",
    },
    Collection.CUDA_L1: {
        "optimized_cuda_code/h100.json": "\n".join(
            [l1("7", "__global__ void seven"), l1("8", "torch.relu"), l1("9", None), l1("10", "None")]
        )
    },
    Collection.HZENG: {
        "KernelBench/level2/5_Y.py": "y",
        "runs/level_2_backend_cute_model_grok-code-fast-1/level_2_problem_5_sample_0_kernel.py": "in CuTe",
        "runs/level_2_backend_cuda_model_grok-code-fast-1/level_2_problem_5_sample_0_kernel.py": "in CUDA",
        "runs/level_2_backend_cuda_model_grok-code-fast-1/generation_config.yaml": "",
        "runs/level_2_backend_cuda_model_Kimi-K2-0905/level_2_problem_5_sample_0_kernel.py": "of another model",
    },
    Collection.ADAEXPLORE: {
        "datasets/KernelBench/level2/5_Y.py": "y",
        "datasets/KernelBench/level3/2_Z.py": "z",
        "results/saved_kernels/kernelbench/level2/5.py": "five",
        "results/saved_kernels/kernelbench/level3/2.py": "two",
    },
}
KERNELS = {
    Collection.LEADERBOARD: [
        (1, 19, "0", "first = 1", PROBLEM),
        (1, 19, "1", "second = 2", PROBLEM),
        (2, 3, "0", "third = 3", PROBLEM),
    ],
    Collection.CUDA_L1: [
        (1, 7, "cuda-l1", "__global__ void seven", "problem 7"),
        (1, 8, "cuda-l1", "torch.relu", "problem 8"),
    ],
    Collection.HZENG: [(2, 5, "cuda-0", "in CUDA", "y"), (2, 5, "cute-0", "in CuTe", "y")],
    Collection.ADAEXPLORE: [(2, 5, "adaexplore", "five", "y"), (3, 2, "adaexplore", "two", "z")],
}


@pytest.mark.parametrize("collection", Collection)
def test_the_kernels_of_a_collection_come_with_their_problems(tmp_path, collection):
    put(tmp_path, CLONES[collection])
    assert kernels_of(collection, tmp_path) == KERNELS[collection]


def arranged(tmp_path, *options):
    put(tmp_path / "clone", CLONES[Collection.LEADERBOARD])
    out = tmp_path / "out"
    result = CliRunner().invoke(main, ["leaderboard", str(tmp_path / "clone"), str(out), *options])
    assert result.exit_code == 0, result.output
    return out, [json.loads(line) for line in (out / "submissions.jsonl").read_text().splitlines()]


def test_a_batch_reads_what_is_written(tmp_path):
    out, _ = arranged(tmp_path)
    problems = Problems(out / "problems", (SizeName.FULL,))
    with (out / "submissions.jsonl").open("rb") as lines:
        tasks = list(read_lines(lines, "submissions.jsonl", problems))
    assert [(task.problem.name, task.name, task.submission.source) for task in tasks] == [
        ("level1/19_problem", "0", "first = 1"),
        ("level1/19_problem", "1", "second = 2"),
        ("level2/3_problem", "0", "third = 3"),
    ]


def named(name, make=cards.card, **changes):
    made = make(**changes)
    return replace(made, submission=replace(made.submission, name=name))


def test_copies_are_grades_of_one_kernel_and_others_than_correct_ones_have_a_row():
    other = finding(Code.WRONG_ON_OTHER_VALUES, "correct for the problem's own inputs | wrong for large")
    run = [
        named("gpt-4.1.0"),
        named("gpt-4.1.1"),
        named("gpt-4.1.2", cards.wrong_card, reason=other),
        named("cuda-0"),
        named("gpt-4.1-mini"),
        named("cute-0", cards.uncompiled_card),
    ]
    assert [name for _, name in grades_of(run)] == ["cuda-0", "cute-0", "gpt-4.1", "gpt-4.1-mini"]
    lines = list(table(grades_of(run)))
    largest = max(tensor.error_ratio for each in cards.card().checks for tensor in each.tensors)
    assert lines[0] == "4 kernels, 6 grades; kernels correct in every grade: 2"
    assert lines[1] == f"Largest error of a correct grade: {largest:.2f} of the allowed one."
    assert [line for line in lines if line.startswith("| `")] == [
        "| `correct` | 4 |",
        "| `wrong_result` | 1 |",
        "| `build_error` | 1 |",
    ]
    assert lines[-2:] == [
        "| relu | cute-0 | 0 of 1 | 1 x B203 | the extension 'relu' does not compile |",
        "| relu | gpt-4.1 | 2 of 3 | 1 x C422 | correct for the problem's own inputs \\| wrong for large |",
    ]


def test_verdicts_of_two_runs_are_compared_by_kernel():
    here, there = [named("a"), named("b"), named("c")], [named("a", cards.wrong_card), named("b"), named("d")]
    lines = list(differences(grades_of(here), grades_of(there)))
    assert lines[0] == "2 kernels are in both runs; with other verdicts or codes: 1"
    assert lines[-1] == "| relu | a | correct | wrong_result C405 |"
