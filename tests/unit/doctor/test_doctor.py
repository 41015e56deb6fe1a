"""What the doctor says of the cache folder, and the grades that it makes before it calls a device ready."""

import sys
from pathlib import Path

import pytest

from evaluator.doctor import diagnosis, sample_grade
from evaluator.errors import ExitCode
from evaluator.progress import Silent
from evaluator.records import DeviceKind
from evaluator.toolchain import host_compiler


def test_a_cache_that_takes_builds_is_well(monkeypatch, tmp_path):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path / "new"))
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": diagnosis.CACHE_BYTES}))
    line = diagnosis.cache_line()
    assert line.ok
    assert line.found == f"1.0 GiB in {tmp_path / 'new'}"
    assert line.needed_for == []
    assert list(tmp_path.iterdir()) == []  # Nothing is made before there is something to be kept.


def test_a_cache_that_takes_nothing_is_said_with_the_reason(monkeypatch):
    monkeypatch.setenv("WARPGRADE_CACHE", "/dev/null")
    line = diagnosis.cache_line()
    assert not line.ok
    assert line.found.startswith("/dev/null is not writable: ")
    assert "WARPGRADE_CACHE" in line.fix
    assert line.needed_for == []  # Grades work all the same.


def test_a_cache_on_a_full_disk_is_said(monkeypatch, tmp_path):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path))
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": diagnosis.CACHE_BYTES - 1}))
    line = diagnosis.cache_line()
    assert not line.ok
    assert str(Path(tmp_path)) in line.found


def test_packages_without_bytecode_are_named_and_grades_work_all_the_same(monkeypatch, tmp_path):
    assert diagnosis.bytecode_line().found == "compiled for torch, sympy, numpy"
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    line = diagnosis.bytecode_line()
    assert (line.ok, line.found, line.needed_for) == (False, "missing for torch, sympy, numpy", [])
    assert f"{sys.executable} -m compileall -q {Path(host_compiler.library_path()).parent} " in line.fix


def test_a_missing_compiler_is_said_with_the_way_to_get_one(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    host_compiler.cxx.cache_clear()
    line = diagnosis.compiler_line()
    host_compiler.cxx.cache_clear()
    assert (line.ok, line.found[:15], line.fix[:11]) == (False, "no C++ compiler", "install g++")


def ready_for(*devices):
    return diagnosis.Diagnosis(lines=[], ready=list(devices), prepared=[])


@pytest.mark.slow
def test_a_device_is_ready_once_a_tiny_submission_is_graded_there():
    said = sample_grade.tried(ready_for(DeviceKind.CPU), Silent())
    assert said.ready == [DeviceKind.CPU], said.lines
    (line,) = said.lines
    assert (line.name, line.ok, line.fix) == ("on cpu", True, "")


@pytest.mark.parametrize(
    ("printed", "found"),
    [
        (
            '{"status": "infra_error", "reason": {"code": "X602", "message": "the starter ended"}}',
            "the grade of a tiny submission is infra error: X602 the starter ended",
        ),
        ("", "exit status 3: no torch"),
        ("{}", "exit status 3: no torch"),
    ],
)
def test_a_device_whose_grade_fails_is_not_ready_and_says_why(monkeypatch, printed, found):
    boot = f"import sys; print('no torch', file=sys.stderr); print({printed!r}); sys.exit(3)"
    monkeypatch.setattr(sample_grade, "_BOOT", boot)
    said = sample_grade.tried(ready_for(DeviceKind.EMULATED, DeviceKind.CPU), Silent())
    assert said.ready == []
    assert [line.name for line in said.lines] == ["on emulated", "on cpu"]
    assert all(line.found == found and line.fix for line in said.lines)
    assert said.exit_code == ExitCode.INFRASTRUCTURE
