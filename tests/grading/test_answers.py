"""Answers of language models, stdin, and replays."""

import os
from pathlib import Path

import pytest

from evaluator.findings import Code
from evaluator.records import GradeMode, Status
from tests.grading.harness import TOP, module

ANSWERS = TOP / "tests" / "data" / "answers"
VERDICTS = {
    "linear_relu_divide.md": ("linear_relu_divide", Status.INCONCLUSIVE, Code.NOT_ON_THIS_DEVICE),
    "relu_autograd.md": ("relu_backward", Status.INCONCLUSIVE, Code.NOT_ON_THIS_DEVICE),
    "relu_float4_wrong_index.txt": ("relu", Status.INCONCLUSIVE, Code.NOT_ON_THIS_DEVICE),
    "relu_forward.txt": ("relu", Status.INCONCLUSIVE, Code.NOT_ON_THIS_DEVICE),
    "relu_torch_library.md": ("relu", Status.INCONCLUSIVE, Code.NOT_ON_THIS_DEVICE),
}


def test_every_answer_has_a_verdict():
    assert {path.name for path in ANSWERS.iterdir()} == set(VERDICTS)


@pytest.mark.parametrize(("name", "expected"), VERDICTS.items())
def test_inline_cuda_in_an_answer_is_no_verdict_on_the_cpu(grader, tmp_path, name, expected):
    problem, status, code = expected
    card = grader(tmp_path, None, ANSWERS / name, problem=problem).assert_verdict(status, code)
    assert card.submission.extracted_from_answer


def test_mode_check_decides_without_a_clock(grader, tmp_path):
    run = grader(tmp_path, module(), "--mode", "check")
    card = run.assert_verdict(Status.CORRECT)
    assert (card.mode, card.timing, card.baselines) == (GradeMode.CHECK, None, [])
    assert len(card.checks) >= 16  # As many as on a device without a clock.
    assert Code.NOT_TIMED in run.findings
    assert "no time was measured (mode check)" in run.out
    assert "Speedup" not in run.out
    assert "time" not in card.stages_s
    (tmp_path / "card.json").rename(tmp_path / "first.json")
    again = grader.run(tmp_path, "--replay", tmp_path / "first.json")
    assert again.card.mode is GradeMode.CHECK
    assert "same result" in again.err


SEEDS = os.environ.get("WARPGRADE_SEEDS")


@pytest.mark.skipif(SEEDS is None, reason="WARPGRADE_SEEDS names no folder of seeds")
def test_the_seeds_are_inline_cuda(grader, tmp_path):
    paths = sorted(Path(SEEDS or "").glob("00[0-4]_*.txt"))
    assert paths
    for path in paths:
        card = grader(tmp_path, None, path).assert_verdict(Status.INCONCLUSIVE, Code.NOT_ON_THIS_DEVICE)
        assert card.submission.extracted_from_answer
        (tmp_path / "card.json").unlink()


def test_stdin_is_read_for_a_dash(grade):
    answer = f"Here it is:\n\n```python\n{module()}```\n"
    card = grade(None, "--json", stdin=answer.encode()).assert_verdict(Status.CORRECT)
    assert card.submission.name == f"stdin-{card.submission.sha256[:12]}"
    assert card.submission.extracted_from_answer


@pytest.mark.parametrize(
    ("source", "status"),
    [(module(), Status.CORRECT), (module(forward=["return torch.clamp(x, min=0.01)"]), Status.WRONG_RESULT)],
    ids=["correct", "wrong"],
)
def test_a_replay_comes_out_the_same(grader, tmp_path, source, status):
    first = grader(tmp_path, source).card
    kept = (tmp_path / "card.json").rename(tmp_path / "first.json")
    again = grader.run(tmp_path, "--replay", kept)
    assert "same result" in again.err
    assert first.status is again.card.status is status
    assert again.card.checks == first.checks
    assert again.card.seeds.weight == first.seeds.weight
    assert again.card.seeds.replayed_from == first.graded_at
    assert again.card.submission.sha256 == first.submission.sha256
