"""A submission in the test's process, for trials of the judge."""

import contextlib

import pytest

from evaluator.devices.memory import HostRegion
from tests.unit.judge.trial.in_process import ROOM, Maker


@pytest.fixture
def in_process(tmp_path):
    """Make trials of submissions in this process."""
    with contextlib.ExitStack() as regions:
        inputs, outputs = (regions.enter_context(HostRegion(4 * ROOM)) for _ in range(2))
        yield Maker(inputs, outputs, tmp_path)
