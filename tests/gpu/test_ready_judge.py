"""The ready judge on a GPU: the same card, and no other grade waits long for an idle judge's GPU."""

import os
import time
from pathlib import Path

import pytest
import torch

from evaluator.records import Status
from tests.grading.harness import module, nobody_left_behind, passable_folder
from tests.serve.conftest import soon
from tests.serve.judge import Judge, facts

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
RIGHT = module(forward=("return torch.clamp(x, min=0.0)",))
WRONG = module(forward=("return torch.clamp(x, min=0.0) + 1",))
FAULTY = module(
    "import ctypes",
    forward=(
        "driver = ctypes.CDLL('libcuda.so.1')",
        "driver.cuMemsetD8_v2(ctypes.c_uint64(64), ctypes.c_ubyte(0), ctypes.c_size_t(1 << 20))",
        "torch.cuda.synchronize()",
        "return torch.clamp(x, min=0.0)",
    ),
)
_SOON_S = 120.0


@pytest.fixture
def judge(tmp_path):
    with nobody_left_behind(), passable_folder() as fresh, passable_folder() as temporary:
        cache = Path(os.environ.get("WARPGRADE_CACHE") or fresh)
        made = Judge("cuda", tmp_path, cache, temporary)
        made.size = "small"
        made.start()
        try:
            yield made
        finally:
            made.end()


def test_the_card_is_the_same(judge):
    for source, status in ((RIGHT, Status.CORRECT), (WRONG, Status.WRONG_RESULT), (RIGHT, Status.CORRECT)):
        ready, its_card = judge.grade(source)
        alone, own_card = judge.grade(source, "--no-ready")
        assert "graded by the ready judge" in ready.stderr, ready.stderr
        assert "ready judge" not in alone.stderr
        assert its_card.status is own_card.status is status, (its_card.reason, own_card.reason)
        assert facts(its_card) == facts(own_card)


def test_an_idle_judge_gives_its_gpu_to_another_grade_and_goes_on(judge):
    ready, _ = judge.grade(RIGHT)
    assert "graded by the ready judge" in ready.stderr, ready.stderr
    started_s = time.monotonic()
    alone, card = judge.grade(RIGHT, "--no-ready")
    waited_s = time.monotonic() - started_s
    assert card.status is Status.CORRECT, alone.stderr
    assert waited_s < _SOON_S  # The lease would be waited for during 600 s.
    again, card = judge.grade(RIGHT)
    assert "graded by the ready judge" in again.stderr
    assert card.status is Status.CORRECT
    soon(lambda: judge.status()["grades"] == 2)


def test_a_submission_that_faults_costs_the_next_grade_nothing(judge):
    judge.grade(RIGHT)
    judge.grade(FAULTY, name="faulty")
    after, card = judge.grade(RIGHT, name="after")
    assert "graded by the ready judge" in after.stderr, after.stderr
    assert card.status is Status.CORRECT, card.reason
