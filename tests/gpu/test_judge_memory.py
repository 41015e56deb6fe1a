"""How much of a GPU the judge takes, by the driver's own count."""

import json
import os
import subprocess
import sys
import time

import pynvml
import pytest
import torch

from evaluator.devices.gpu import choose
from tests.grading.harness import TOP

GIB = 1 << 30
MOST_BYTES = 26 * GIB
"""Inputs and three outputs of 6 GiB, 1 GiB more, and a context: 25.9 GiB on an H200 with driver 580."""
ROUND_S = 0.01
LIMIT_S = 300.0

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


def taken_bytes(handle, process):
    """Give what the driver says that a process has; None where it is not on the GPU."""
    used = [each.usedGpuMemory for each in pynvml.nvmlDeviceGetComputeRunningProcesses(handle) if each.pid == process]
    return used[0] if used else None


def test_the_judge_of_the_largest_problem_takes_no_more_than_was_promised(tmp_path):
    gpu = choose(None)
    if gpu.memory_bytes < 40 * GIB:
        pytest.skip("needs 40 GiB of GPU memory")
    submission, card = tmp_path / "same.py", tmp_path / "card.json"
    submission.write_text("from model import Model as ModelNew\n")
    command = [sys.executable, str(TOP / "cli.py"), "grade", "relu", str(submission), "--quiet", "--output", str(card)]
    environment = os.environ | {"WARPGRADE_CACHE": str(tmp_path / "cache")}  # All is decided and measured anew.
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
    most_bytes, deadline_s = 0, time.monotonic() + LIMIT_S
    told = tmp_path / "told.txt"
    with told.open("wb") as log, subprocess.Popen(command, env=environment, stdout=log, stderr=log) as judge:
        while judge.poll() is None:
            most_bytes = max(most_bytes, taken_bytes(handle, judge.pid) or 0)
            if time.monotonic() > deadline_s:
                judge.kill()
            time.sleep(ROUND_S)
    assert judge.returncode == 0, told.read_text()
    assert json.loads(card.read_text())["status"] == "correct"
    if not most_bytes:
        pytest.skip("the driver does not tell of processes here")
    assert 12 * GIB < most_bytes <= MOST_BYTES, f"{most_bytes / GIB:.1f} GiB"
