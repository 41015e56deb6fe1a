from collections import Counter

import pytest

from evaluator.batch.workers import worker_pool
from evaluator.grading import card
from tests.batch.fakes import FakeWorker


@pytest.fixture
def worker(monkeypatch):
    """Every worker is a fake one, and tries again without a wait."""
    monkeypatch.setattr(FakeWorker, "graded", Counter(), raising=False)
    monkeypatch.setattr(FakeWorker, "started", [], raising=False)
    monkeypatch.setattr(worker_pool, "LocalWorker", FakeWorker)
    monkeypatch.setattr(worker_pool, "BACKOFF_S", (0.0, 0.0))
    # The card of a lost one is made by the pipeline itself, on this machine.
    monkeypatch.setattr(card, "_cpu_name", lambda: "a processor")
    return FakeWorker


@pytest.fixture
def hand_in(tmp_path):
    """Writes submissions: `hand_in({"relu/a.py": "# right"})`."""

    def write(files):
        for name, source in files.items():
            path = tmp_path / "submissions" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source)
        return tmp_path / "submissions"

    return write
