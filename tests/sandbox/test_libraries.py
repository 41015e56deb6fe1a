"""Packages from the judge's PYTHONPATH: fork servers import them; folders without packages stay hidden."""

import subprocess
import sys
from pathlib import Path

import pytest

from evaluator.batch.runs.problems import Problems
from evaluator.batch.runs.run_folder import manifest_for, opened
from evaluator.errors import UsageError
from evaluator.grade_options import GradeOptions
from evaluator.records import DeviceKind, SizeName
from evaluator.sandbox import ForkServer, visible_files
from evaluator.sandbox.visible_files import library_folders
from evaluator.service.tokens import locked


@pytest.fixture
def path(monkeypatch):
    def extend(*folders):
        monkeypatch.setattr(sys, "path", [*map(str, folders), *sys.path])

    return extend


@pytest.fixture
def packages(tmp_path):
    folder = tmp_path / "packages"
    (folder / "somebodys-1.0.dist-info").mkdir(parents=True)
    (folder / "somebodys.py").write_text("")
    return folder


def test_folders_with_packages_are_seen_and_others_stay_hidden(path, packages, tmp_path, monkeypatch):
    project = tmp_path / "project"
    (project / "scorecards").mkdir(parents=True)
    torch_there = tmp_path / "built"
    (torch_there / "torch").mkdir(parents=True)
    (torch_there / "torch/__init__.py").write_text("")
    before = library_folders()
    path(packages, project, torch_there, packages, tmp_path / "nowhere", "")
    assert [each for each in library_folders() if each not in before] == [str(packages), str(torch_there)]
    assert str(packages) in visible_files.readable_paths()
    assert str(project) not in visible_files.readable_paths()
    monkeypatch.chdir(packages)
    assert library_folders().count(str(packages)) == 1


@pytest.mark.parametrize("what", ["the state folder", "the run folder", "the problem folder", "the problem"])
def test_no_folder_of_the_judge_is_where_submissions_read(what, path, packages, tmp_path):
    path(packages)
    place = packages / "kept"
    acts = {
        "the state folder": lambda: locked(place).__enter__(),
        "the run folder": lambda: opened(place, manifest_for(GradeOptions(DeviceKind.CPU), "x")).__enter__(),
        "the problem folder": lambda: Problems(place, (SizeName.SMALL,)),
        "the problem": lambda: visible_files.refuse_readable(place, "the problem"),
    }
    with pytest.raises(UsageError, match=f"{what} {place} is in a folder that submissions can read: {packages}"):
        acts[what]()
    assert not place.exists()


def test_a_prefix_is_visible_by_its_libraries_alone(tmp_path, monkeypatch):
    for name in ("bin", "lib", "x86_64-linux-gnu", "state", "problems"):
        (tmp_path / "venv" / name).mkdir(parents=True)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    seen = {Path(each).name for each in visible_files.readable_paths() if Path(each).is_relative_to(tmp_path)}
    assert seen == {"bin", "lib", "x86_64-linux-gnu"}
    assert not {"/usr", "/opt", "/usr/local", "/"} & set(visible_files.readable_paths())


def test_the_current_folder_is_none(path, packages, monkeypatch):
    monkeypatch.chdir(packages)
    path("")
    assert str(packages) not in library_folders()


def test_a_fork_server_imports_what_the_judge_would(path, packages):
    path(packages)
    with ForkServer(preload=("somebodys",)) as fork_server:
        assert fork_server.machine is not None


def test_python_without_packages_of_its_own_starts_with_those_of_pythonpath():
    """As `PYTHONPATH=DIR python`, where DIR alone has msgspec and torch."""
    packages = next(folder for folder in sys.path if Path(folder, "torch").is_dir())
    program = (
        "from evaluator.sandbox import ForkServer; starter = ForkServer(preload=()); starter.machine; starter.close()"
    )
    python = Path(sys.executable).resolve()
    done = subprocess.run(
        [python, "-S", "-c", program],
        cwd=visible_files.source_root(),
        env={"PYTHONPATH": packages, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
