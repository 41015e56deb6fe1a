"""Doubles of a GPU for the tests of the clocks, sessions and leases."""

import os
from pathlib import Path

import pytest

from evaluator.devices.gpu import Gpu
from evaluator.judge.clock import gpu_session
from tests.unit.judge.clock.host_gpu import clock_of

__all__ = ["clock_of"]


@pytest.fixture
def gpu(tmp_path, monkeypatch):
    """A GPU that no other test leases. Without a GPU: leases are locks of files."""
    monkeypatch.setattr(gpu_session, "_LOOK_ROUND_S", 0.01)
    made = Gpu(3, f"test-{os.getpid()}-{tmp_path.name}", "a GPU", (9, 0), 1 << 30, "1", ())
    yield made
    for kind in ("lock", "waiting"):
        Path("/tmp", f"warpgrade-{made.uuid}.{kind}").unlink(missing_ok=True)
