"""The cache of finished libraries: never half an entry, never a wrong one, and never a failure of its own."""

import hashlib
import os
import threading
from pathlib import Path

import pytest

from evaluator.cache import build_cache
from evaluator.cache.build_cache import BuildCache
from evaluator.findings import Code
from evaluator.grading.card import remarks_on
from evaluator.paths import cache_folder
from evaluator.records import Outcome

KEY = hashlib.sha256(b"a").hexdigest()
OTHER = hashlib.sha256(b"b").hexdigest()
LIBRARY = b"\x7fELF" + bytes(1000)


@pytest.fixture(autouse=True)
def nothing_spilled():
    """Forget what a test's process met, and remove what it kept."""
    yield
    build_cache.remove()


@pytest.fixture
def cache(tmp_path):
    return BuildCache(tmp_path)


def entry_folder(tmp_path, key=KEY):
    return tmp_path / "builds" / key[:2] / key


def names(folder):
    return [path.name for path in folder.iterdir()]


def put(cache, key=KEY, library=LIBRARY):
    cache.put(key, library, log="a log", wall_s=2.5)


def test_what_is_put_is_got(cache, tmp_path):
    assert cache.get(KEY) is None
    put(cache)
    entry = cache.get(KEY)
    assert entry.library == LIBRARY
    assert (entry.manifest.key, entry.manifest.log, entry.manifest.wall_s) == (KEY, "a log", 2.5)
    assert cache.get(OTHER) is None
    assert BuildCache(tmp_path).get(KEY) == entry


def test_nothing_is_made_before_something_is_kept(tmp_path):
    BuildCache(tmp_path / "cache").get(KEY)
    assert not (tmp_path / "cache").exists()


def test_an_entry_leaves_no_draft_behind(cache, tmp_path):
    put(cache)
    put(cache)
    assert names(entry_folder(tmp_path).parent) == [KEY]


DAMAGE = {
    "another library": lambda folder: (folder / "library.so").write_bytes(b"evil"),
    "one byte of the library": lambda folder: (folder / "library.so").write_bytes(LIBRARY[:-1] + b"\1"),
    "half of the library": lambda folder: (folder / "library.so").write_bytes(LIBRARY[:500]),
    "no library": lambda folder: (folder / "library.so").unlink(),
    "a folder for a library": lambda folder: ((folder / "library.so").unlink(), (folder / "library.so").mkdir()),
    "no manifest": lambda folder: (folder / "manifest.json").unlink(),
    "an empty manifest": lambda folder: (folder / "manifest.json").write_bytes(b""),
    "a manifest that is no JSON": lambda folder: (folder / "manifest.json").write_bytes(b"\xff\xfe{"),
    "a manifest of other fields": lambda folder: (folder / "manifest.json").write_text('{"key": 1}'),
    "a manifest of another key": lambda folder: (folder / "manifest.json").write_text(
        (folder / "manifest.json").read_text().replace(KEY, OTHER)
    ),
    "an empty folder": lambda folder: [(folder / name).unlink() for name in ("library.so", "manifest.json")],
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_entry_counts_as_absent_and_is_built_anew(cache, tmp_path, damage):
    put(cache)
    damage(entry_folder(tmp_path))
    assert cache.get(KEY) is None
    assert not entry_folder(tmp_path).exists()
    put(cache)
    assert cache.get(KEY).library == LIBRARY


def test_the_first_of_two_writers_wins(cache):
    put(cache)
    put(cache, library=b"a library that was built at the same time")
    assert cache.get(KEY).library == LIBRARY


def test_readers_and_writers_at_the_same_time_never_see_half_an_entry(tmp_path):
    seen, stop = [], threading.Event()

    def read():
        while not stop.is_set():
            entry = BuildCache(tmp_path).get(KEY)
            seen.append(None if entry is None else entry.library)

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(20):
        writers = [threading.Thread(target=put, args=(BuildCache(tmp_path),)) for _ in range(3)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
    stop.set()
    reader.join()
    assert set(seen) <= {None, LIBRARY}
    assert BuildCache(tmp_path).get(KEY).library == LIBRARY
    assert names(entry_folder(tmp_path).parent) == [KEY]


@pytest.mark.parametrize(
    ("name", "file"), [("write_bytes", ""), ("write_bytes", "manifest.json"), ("mkdir", ""), ("rename", "")]
)
def test_a_full_disk_is_noted_and_nothing_is_left_on_it(cache, tmp_path, monkeypatch, name, file):
    usual = getattr(Path, name)

    def full(path, *given, **how):
        if path.name.endswith(file):
            raise OSError(28, "No space left on device")
        return usual(path, *given, **how)

    with monkeypatch.context() as patched:
        patched.setattr(Path, name, full)
        put(cache)
    assert cache.get(KEY) is None  # The temporary folder was full too.
    assert not list(tmp_path.rglob("library.so"))
    assert build_cache.trouble(tmp_path) == (tmp_path, "No space left on device")
    put(cache)
    assert cache.get(KEY).library == LIBRARY


def full_below(top, monkeypatch):
    """Have the disk of the folder `top` be full."""

    def write(path, data, write=Path.write_bytes):
        if path.is_relative_to(top):
            raise OSError(28, "No space left on device")
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", write)


def test_what_a_full_disk_does_not_take_is_kept_for_this_process(cache, tmp_path, monkeypatch):
    put(cache)
    full_below(tmp_path, monkeypatch)
    put(cache, OTHER)
    put(cache.parts, OTHER)
    assert cache.get(KEY).library == cache.get(OTHER).library == LIBRARY  # What it holds already is read on.
    assert BuildCache(tmp_path).parts.get(OTHER).library == LIBRARY
    assert BuildCache(tmp_path).failures.get(OTHER) is None
    kept = cache.folder(OTHER)
    assert kept is not None
    assert not kept.is_relative_to(tmp_path)
    assert (kept / "library.so").read_bytes() == LIBRARY
    build_cache.remove()
    assert not kept.exists()
    assert cache.get(OTHER) is None
    assert cache.get(KEY).library == LIBRARY


@pytest.mark.parametrize("place", ["/dev/null", "/proc/nowhere"])
def test_a_cache_that_is_no_folder_is_noted(place):
    cache = BuildCache(Path(place))
    put(cache)
    assert cache.get(KEY).library == LIBRARY
    assert build_cache.trouble(Path(place)) is not None
    assert build_cache.trouble(Path("/elsewhere")) is None


def test_a_folder_that_takes_everything_is_no_trouble(cache, tmp_path):
    put(cache)
    put(cache)  # The second finds the first's in its place.
    assert build_cache.trouble(tmp_path) is None
    assert build_cache.spilled() is None


def test_a_card_says_that_builds_could_not_be_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path))
    assert Code.CACHE_UNUSABLE.value not in [each.code for each in remarks_on(Outcome())]
    full_below(tmp_path, monkeypatch)
    put(BuildCache(tmp_path))
    (remark,) = [each for each in remarks_on(Outcome()) if each.code == Code.CACHE_UNUSABLE.value]
    assert remark.message == f"the cache {tmp_path} cannot store builds: No space left on device"


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes into read-only folders")
def test_a_read_only_folder_is_read_and_not_written(cache, tmp_path):
    put(cache)
    folders = [tmp_path / "builds", entry_folder(tmp_path).parent, entry_folder(tmp_path)]
    for folder in folders:
        folder.chmod(0o500)
    try:
        put(cache, OTHER)
        assert cache.get(KEY).library == LIBRARY
        assert not cache.folder(OTHER).is_relative_to(tmp_path)
    finally:
        for folder in folders:
            folder.chmod(0o700)


def test_a_read_only_file_system_keeps_nothing(cache, monkeypatch):
    def read_only(*_, **__):
        raise OSError(30, "Read-only file system")

    put(cache)
    monkeypatch.setattr("tempfile.mkdtemp", read_only)
    put(cache, OTHER)
    assert cache.get(KEY).library == LIBRARY
    assert cache.get(OTHER) is None


def test_the_folder_is_the_users_choice(monkeypatch, tmp_path):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine"
    monkeypatch.delenv("WARPGRADE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "warpgrade"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "warpgrade"
