"""Device `cuda`: calls of microseconds are timed in windows, and calls that share work are not quoted."""

import pytest
import torch

from evaluator.findings import Code
from evaluator.records import Status
from tests.grading.harness import Grader

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

PLAIN = """
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.clamp(x, min=0)
"""

# Computes the outputs of all calls of a window in its first call, in one launch.
AHEAD = """
import torch
from torch import nn

from evaluator.runner.main import Runner

waiting, ready = [], []
make_window = Runner._window


def window(runner, frame):
    waiting.clear()
    ready.clear()
    if not frame.masked and not frame.calls[0].empty:
        waiting.extend(runner._values(call).args[0] for call in frame.calls)
    return make_window(runner, frame)


Runner._window = window
# A first launch synchronizes with the GPU, and no window would be queued.
torch._foreach_clamp_min([torch.zeros(8, device="cuda")] * 2, 0.0)


class ModelNew(nn.Module):
    def forward(self, x):
        if waiting:
            ready.extend(torch._foreach_clamp_min(waiting, 0.0))
            waiting.clear()
        return ready.pop(0) if ready else torch.clamp(x, min=0)
"""

# Returns zeros, and writes the outputs on a stream that waits for the end of the call.
LATER = """
import torch
from torch import nn

from evaluator.runner.device_arena import Gate

digest = Gate.digest
last = []


def digest_first(gate, number, answer):
    digest(gate, number, answer)
    x, out = last.pop()
    torch.clamp(x, min=0, out=out)


Gate.digest = digest_first


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.clamp(x, min=0)
        last[:] = [(x, out)]
        if spot():
            out.zero_()
        return out


def spot():
    import inspect

    return any(frame.function == "_spot_call" for frame in inspect.stack())
"""


def of_own_problem(tmp_path, reference, source):
    """Return the card of a correct submission to a problem of one file."""
    problem, folder = tmp_path / "own.py", tmp_path / "graded"
    problem.write_text(reference)
    folder.mkdir()
    grader = Grader(tmp_path / "cache", tmp_path)
    run = grader(folder, source, "--device", "cuda", problem=str(problem), timeout_s=60.0)
    return run.assert_verdict(Status.CORRECT)


def graded(tmp_path, source):
    grader, folder = Grader(tmp_path / "cache", tmp_path), tmp_path / "graded"
    folder.mkdir()
    return grader(folder, source, "--device", "cuda", "--size", "small", problem="relu", timeout_s=60.0)


CLAMP = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.clamp(x, min=0)


def get_inputs():
    return [torch.randn(1 << 22)]


def get_init_inputs():
    return []
"""


def test_a_call_of_microseconds_is_timed_in_windows_and_calls_alone_agree(tmp_path):
    """A call of 11 us. Spot checks of shorter calls may scatter by more than their margin beside other work."""
    card = of_own_problem(tmp_path, CLAMP, PLAIN)
    for side in (card.timing.reference_before, card.timing.submission, card.timing.reference_after):
        assert side.samples_ms == side.windows.call_ms
        assert max(side.windows.calls) > 8
    windows = card.timing.submission.windows
    assert windows.spot_ms
    assert not windows.shared_work


def test_work_for_several_calls_at_once_is_not_quoted(tmp_path):
    run = graded(tmp_path, AHEAD)
    card = run.assert_verdict(Status.CORRECT)
    assert Code.SHARED_WORK in run.findings
    assert card.timing.submission.samples_ms == card.timing.submission.windows.single_ms
    assert card.timing.speedup is None


def test_outputs_that_are_written_after_the_digest_are_refused(tmp_path):
    graded(tmp_path, LATER).assert_verdict(Status.REJECTED, Code.WORK_AFTER_DONE)


SLOWLY_DRAWN = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, y):
        return x + y


def get_inputs():
    x = torch.randint(0, 9, (1 << 16,))
    if x.is_cuda:
        torch.cuda._sleep(10_000_000)  # The GPU draws the second input 5 ms after the host.
    return [x, torch.randint(0, 9, (1 << 16,))]


def get_init_inputs():
    return []
"""
PLUS = """
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, y):
        return x + y
"""


def test_inputs_that_the_gpu_draws_late_are_complete_in_a_spot_check(tmp_path):
    """Spot checks copy inputs on a stream of their own. Integers have no distribution whose draw waits for the GPU."""
    card = of_own_problem(tmp_path, SLOWLY_DRAWN, PLUS)
    assert card.timing.submission.windows.spot_ms
