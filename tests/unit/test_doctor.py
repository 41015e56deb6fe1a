"""What the doctor says of the cache folder."""

from pathlib import Path

from evaluator import doctor


def test_a_cache_that_takes_builds_is_well(monkeypatch, tmp_path):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path / "new"))
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": doctor.CACHE_BYTES}))
    line = doctor.cache_line()
    assert line.ok
    assert line.found == f"1.0 GiB in {tmp_path / 'new'}"
    assert line.needed_for == []
    assert list((tmp_path / "new").iterdir()) == []


def test_a_cache_that_takes_nothing_is_said_with_the_reason(monkeypatch):
    monkeypatch.setenv("WARPGRADE_CACHE", "/dev/null")
    line = doctor.cache_line()
    assert not line.ok
    assert line.found.startswith("/dev/null takes nothing: ")
    assert "WARPGRADE_CACHE" in line.fix
    assert line.needed_for == []  # Grades work all the same.


def test_a_cache_on_a_full_disk_is_said(monkeypatch, tmp_path):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path))
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": doctor.CACHE_BYTES - 1}))
    line = doctor.cache_line()
    assert not line.ok
    assert str(Path(tmp_path)) in line.found
