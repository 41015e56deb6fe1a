import contextlib
import json
import shutil
from collections import Counter

import pytest

from evaluator.batch.workers import worker_pool
from evaluator.commands import main as cli
from evaluator.grading import card
from tests.batch.fakes import FakeWorker


def with_fake_workers(patch):
    """Let all workers be fake, and try again without a pause."""
    patch.setattr(FakeWorker, "graded", Counter(), raising=False)
    patch.setattr(FakeWorker, "started", [], raising=False)
    patch.setattr(worker_pool, "LocalWorker", FakeWorker)
    patch.setattr(worker_pool, "BACKOFF_S", (0.0, 0.0))
    # The pipeline itself makes the card of a lost worker, on this machine.
    patch.setattr(card, "_cpu_name", lambda: "a processor")


@pytest.fixture
def worker(monkeypatch):
    with_fake_workers(monkeypatch)
    return FakeWorker


def write_submissions(folder, files):
    for name, source in files.items():
        path = folder / "submissions" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return folder / "submissions"


@pytest.fixture
def hand_in(tmp_path):
    """Writes submissions: `hand_in({"relu/a.py": "# right"})`."""
    return lambda files: write_submissions(tmp_path, files)


@pytest.fixture
def command(tmp_path, capsys, monkeypatch):
    """Runs a command in `tmp_path`; `command.out` and `command.err` have its output."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        capsys.readouterr()
        code = cli.run(list(map(str, arguments)))
        run.out, run.err = capsys.readouterr()
        return code

    return run


@pytest.fixture
def batch(command, worker):
    """Runs a batch; `batch.lines` has its JSON lines, `batch.err` its messages."""

    def run(*arguments, submissions="submissions"):
        code = command("batch", submissions, "--run", "run", "--device", "cpu", "--jsonl", *arguments)
        run.lines, run.err = [json.loads(line) for line in command.out.splitlines()], command.err
        return code

    return run


@pytest.fixture(scope="module")
def graded(request, tmp_path_factory):
    """Folder with a run of the module's FILES, made once."""
    folder = tmp_path_factory.mktemp("graded")
    write_submissions(folder, request.module.FILES)
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(folder):
        with_fake_workers(patch)
        cli.run(["batch", "submissions", "--run", "run", "--device", "cpu"])
    return folder


@pytest.fixture
def run(graded, tmp_path, command):
    """Runs a command beside a copy of the run of the module's FILES."""
    shutil.copytree(graded, tmp_path, dirs_exist_ok=True)
    manifest = tmp_path / "run/manifest.json"
    manifest.write_text(manifest.read_text().replace(str(graded), str(tmp_path)))
    return command
