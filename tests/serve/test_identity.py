"""What a client and a ready judge must share."""

import os

import pytest

from evaluator.api import ready_protocol as module
from evaluator.api.ready_protocol import difference, identity


def test_a_process_agrees_with_itself():
    assert difference(identity(), identity()) is None


@pytest.mark.parametrize(
    "name", ["CUDA_VISIBLE_DEVICES", "WARPGRADE_CACHE_LIMIT", "OMP_NUM_THREADS", "NVIDIA_TF32_OVERRIDE"]
)
def test_a_variable_that_the_judge_reads_must_agree(name, monkeypatch):
    server = identity()
    monkeypatch.setenv(name, "7")
    assert difference(server, identity()) == f"the ready judge was started with another {name}"
    assert difference(identity(), server) is not None


def test_another_cache_another_compiler_and_other_cores_are_told(monkeypatch, tmp_path):
    server = identity()
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {70, 71})
    assert {"cache folder", "cores", "g++ on PATH"} <= {
        name for name, value in identity().settings.items() if server.settings[name] != value
    }


@pytest.mark.parametrize("name", ["HOME_ALONE", "WARPGRADE_READY", "WARPGRADE_GRADE_DEVICE", "TERM", "COLUMNS"])
def test_a_variable_that_the_judge_does_not_read_may_differ(name, monkeypatch):
    server = identity()
    monkeypatch.setenv(name, "7")
    assert difference(server, identity()) is None


@pytest.mark.parametrize("change", ["edit", "add", "remove"])
def test_changed_files_are_another_version(change, monkeypatch, tmp_path):
    for place in ("one.py", "room/two.py"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text("x = 1\n")
    monkeypatch.setattr(module, "_PACKAGE", tmp_path)
    server = identity()
    assert difference(server, identity()) is None
    match change:
        case "edit":
            (tmp_path / "room" / "two.py").write_text("x = 22\n")
        case "add":
            (tmp_path / "room" / "three.py").touch()
        case "remove":
            (tmp_path / "one.py").unlink()
    assert difference(server, identity()) == "the ready judge is of another version: restart it"
