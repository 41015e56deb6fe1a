"""What counts as a naive grader that takes a cheat in."""

import os
from pathlib import Path

import pytest

from evaluator.devices.gpu import Gpu, leased
from evaluator.errors import InfraError
from tests.zoo import grading
from tests.zoo.entries import entries
from tests.zoo.grading import Accepted


@pytest.fixture
def row():
    (entry,) = (entry for entry in entries() if entry.expected.control.over_twin)
    return entry


@pytest.mark.parametrize(
    ("cheat", "twin", "accepted"),
    [
        (Accepted(True, 40.0), Accepted(True, 20.0), True),
        (Accepted(True, 25.0), Accepted(True, 20.0), False),
        (Accepted(True, 40.0), Accepted(False, 20.0), False),
        (Accepted(False, 40.0), Accepted(True, 20.0), False),
    ],
)
def test_where_the_work_itself_is_fast_a_cheat_must_be_faster_than_its_twin(
    row, cheat, twin, accepted, tmp_path, monkeypatch
):
    said = {row.cheat: cheat, row.honest: twin}
    monkeypatch.setattr(grading, "_naive_verdict", lambda entry, submission, folder: said[submission])
    assert grading.control(row, row.cheat, tmp_path).accepted is accepted


def test_where_nothing_can_confine_a_naive_grader_there_is_no_answer(row, tmp_path, monkeypatch):
    monkeypatch.setattr(grading, "_naive_verdict", lambda entry, submission, folder: None)
    assert grading.control(row, row.cheat, tmp_path) is None


@pytest.mark.parametrize(
    ("device", "worker", "is_leased"), [("cuda", "gw0", True), ("cuda", None, False), ("cpu", "gw0", False)]
)
def test_a_naive_grader_has_its_gpu_alone_beside_other_workers(monkeypatch, tmp_path, device, worker, is_leased):
    gpu = Gpu(3, f"test-{os.getpid()}-{tmp_path.name}", "a GPU", (9, 0), 1 << 30, "1", ())
    monkeypatch.setattr(grading, "choose", lambda _: gpu)
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    if worker is not None:
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
    with grading.quiet(device) as seen:
        assert seen.get("CUDA_VISIBLE_DEVICES") == (gpu.uuid if is_leased else None)
        if is_leased:
            with pytest.raises(InfraError, match="busy"), leased(gpu, 0.0):
                pytest.fail("a grade has the GPU at the same time")
    with leased(gpu, 0.0):  # The naive grader has ended.
        pass
    for kind in ("lock", "waiting"):
        Path("/tmp", f"warpgrade-{gpu.uuid}.{kind}").unlink(missing_ok=True)
