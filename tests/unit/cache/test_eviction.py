"""The room the cache takes: bounded, least recently used first, nothing that is read, nothing by halves."""

import fcntl
import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evaluator.cache import eviction
from evaluator.cache.build_cache import BuildCache
from evaluator.cache.eviction import RECENT_S, CacheNamespace, clear, hold, make_room, parse_size, usage
from evaluator.errors import UsageError

TOP = Path(__file__).parents[3]
LIBRARY = bytes(100_000)
AT_ONCE = 1 << 40
"""So much came in that the room is looked at whenever it was looked at last."""


def key(number):
    return hashlib.sha256(str(number).encode()).hexdigest()


def folder(root, number, namespace=CacheNamespace.BUILDS):
    return root / namespace / key(number)[:2] / key(number)


def put(root, number, *, age_s=2 * RECENT_S, library=LIBRARY, namespace=CacheNamespace.BUILDS):
    BuildCache(root, namespace=namespace).put(key(number), library, log="", wall_s=1.0)
    used_s = time.time() - age_s
    os.utime(folder(root, number, namespace), (used_s, used_s))


def left(root, numbers, namespace=CacheNamespace.BUILDS):
    return [number for number in numbers if folder(root, number, namespace).exists()]


def hidden(root):
    return [path for path in root.rglob(".*") if path.is_dir()]


@pytest.fixture(autouse=True)
def _let_go():
    """What a test holds is held by this process."""
    yield
    for descriptor in eviction._held.values():
        os.close(descriptor)
    eviction._held.clear()


def test_what_was_not_used_for_longest_goes_first(tmp_path):
    for number, age_s in enumerate([5000, 9000, 7000, 1000]):
        put(tmp_path, number, age_s=age_s)
    size_bytes = usage(tmp_path, 1).bytes
    make_room(tmp_path, size_bytes // 2, AT_ONCE)
    assert left(tmp_path, range(4)) == [0, 3]
    assert usage(tmp_path, 1).bytes == size_bytes // 2
    assert hidden(tmp_path) == []


@pytest.mark.parametrize("namespace", ["builds", "failures", "sass"])
def test_builds_that_nobody_came_back_for_cannot_evict_others(tmp_path, namespace):
    """One stranger after the other has extensions built; those that are in use stay, and so do our own parts."""
    BuildCache(tmp_path).parts.put(key(100), LIBRARY, log="", wall_s=1.0)
    parts = folder(tmp_path, 100, CacheNamespace.PARTS)
    os.utime(parts, (0, 0))
    for number in range(3):
        put(tmp_path, number, age_s=20_000)
        made_s = time.time() - 50_000
        os.utime(folder(tmp_path, number) / "manifest.json", (made_s, made_s))
    size_bytes = usage(tmp_path, 1).bytes
    for number in range(10, 40):
        put(tmp_path, number, age_s=10_000 - number, namespace=CacheNamespace(namespace))
        make_room(tmp_path, 2 * size_bytes, AT_ONCE)
        assert usage(tmp_path, 1).bytes <= 2 * size_bytes
    assert left(tmp_path, range(3)) == [0, 1, 2]
    assert parts.exists()
    assert left(tmp_path, range(10, 40), CacheNamespace(namespace)) == [36, 37, 38, 39]


def test_one_submission_adds_no_more_than_its_share(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("evaluator.cache.build_cache._SUBMISSION_BYTES", 250_000)
    everybodys = BuildCache(tmp_path)
    own = everybodys.of_one_submission()
    for number in range(4):
        own.put(key(number), LIBRARY, log="", wall_s=1.0)
    assert left(tmp_path, range(4)) == [0, 1]
    assert "100000 bytes are not kept" in caplog.text
    everybodys.of_one_submission().put(key(9), LIBRARY, log="", wall_s=1.0)
    assert left(tmp_path, [9]) == [9]


def test_within_the_limit_everything_stays(tmp_path):
    for number in range(3):
        put(tmp_path, number)
    make_room(tmp_path, usage(tmp_path, 1).bytes, AT_ONCE)
    assert left(tmp_path, range(3)) == [0, 1, 2]


def test_reading_is_using(tmp_path):
    put(tmp_path, 0, age_s=9000)
    put(tmp_path, 1, age_s=8000)
    assert BuildCache(tmp_path).get(key(0)) is not None
    make_room(tmp_path, 1, AT_ONCE)
    assert left(tmp_path, range(2)) == [0]


def test_what_is_young_stays_whatever_the_limit(tmp_path):
    put(tmp_path, 0, age_s=RECENT_S - 60)
    put(tmp_path, 1, age_s=RECENT_S + 60)
    put(tmp_path, 2, age_s=-3600)  # a clock that was set back
    make_room(tmp_path, 1, AT_ONCE)
    assert left(tmp_path, range(3)) == [0, 2]


def test_what_another_process_reads_stays(tmp_path):
    put(tmp_path, 0)
    put(tmp_path, 1)
    reads = f"from evaluator.cache.build_cache import *; BuildCache(Path({str(tmp_path)!r})).folder({key(0)!r})"
    script = f"{reads}; print('reading', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=TOP, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as reader:
        assert reader.stdout.readline() == b"reading\n"
        os.utime(folder(tmp_path, 0), (0, 0))
        make_room(tmp_path, 1, AT_ONCE)
        assert left(tmp_path, range(2)) == [0]
        assert clear(tmp_path).stayed == 1
        assert left(tmp_path, range(2)) == [0]
        reader.kill()
    make_room(tmp_path, 1, AT_ONCE)
    assert left(tmp_path, range(2)) == []


def test_what_is_being_removed_cannot_be_held(tmp_path):
    put(tmp_path, 0)
    descriptor = os.open(folder(tmp_path, 0), os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    assert not hold(folder(tmp_path, 0))
    assert BuildCache(tmp_path).folder(key(0)) is None
    os.close(descriptor)
    assert hold(folder(tmp_path, 0))
    assert not hold(folder(tmp_path, 1))


def test_an_entry_made_anew_is_held_anew(tmp_path):
    put(tmp_path, 0)
    assert BuildCache(tmp_path).folder(key(0)) is not None
    assert eviction.discard(folder(tmp_path, 0))
    put(tmp_path, 0)
    assert BuildCache(tmp_path).folder(key(0)) is not None
    assert clear(tmp_path).stayed == 1


def test_our_own_parts_count_too(tmp_path):
    BuildCache(tmp_path).parts.put(key(0), LIBRARY, log="", wall_s=1.0)
    os.utime(folder(tmp_path, 0, CacheNamespace.PARTS), (0, 0))
    assert [(each.kind, each.entries) for each in usage(tmp_path, 1).shelves if each.entries] == [("parts", 1)]
    make_room(tmp_path, 1, AT_ONCE)
    assert not folder(tmp_path, 0, CacheNamespace.PARTS).exists()


def test_writing_bounds_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPGRADE_CACHE_LIMIT", "250KB")
    monkeypatch.setattr(eviction, "RECENT_S", -1.0)
    for number in range(10):
        put(tmp_path, number, age_s=100 - number)
        assert usage(tmp_path, 1).bytes <= 250_000
    assert left(tmp_path, range(10)) == [8, 9]


def test_small_entries_do_not_have_everything_looked_at_each_time(tmp_path, monkeypatch):
    looks = []
    monkeypatch.setattr(eviction, "_trim", lambda *_: looks.append(1))
    for _ in range(5):
        make_room(tmp_path, 1000, 9)
    assert len(looks) == 1
    make_room(tmp_path, 1000, 10)
    assert len(looks) == 2
    os.utime(tmp_path / ".trimmed", (0, 0))
    make_room(tmp_path, 1000, 1)
    assert len(looks) == 3


def test_leftovers_of_killed_processes_are_swept_when_old(tmp_path):
    put(tmp_path, 0)
    parent = folder(tmp_path, 0).parent
    for name in (".new-young", ".new-old", ".old-doomed"):
        (parent / name / "entry").mkdir(parents=True)
        (parent / name / "entry" / "library.so").write_bytes(LIBRARY)
    os.utime(parent / ".new-old", (0, 0))
    assert usage(tmp_path, 1).unfinished_bytes >= 3 * len(LIBRARY)
    make_room(tmp_path, 1 << 30, AT_ONCE)
    assert [path.name for path in hidden(tmp_path)] == [".new-young"]
    assert left(tmp_path, [0]) == [0]


def test_clear_removes_everything_and_says_what(tmp_path):
    put(tmp_path, 0, age_s=0)
    BuildCache(tmp_path).failures.put(key(3), LIBRARY, log="", wall_s=1.0)
    BuildCache(tmp_path).machine_code.put(key(4), LIBRARY, log="", wall_s=1.0)
    BuildCache(tmp_path).parts.put(key(1), LIBRARY, log="", wall_s=1.0)
    (tmp_path / "prepared" / "some").mkdir(parents=True)
    BuildCache(tmp_path, namespace=CacheNamespace.MEASURED).put(key(2), LIBRARY, log="", wall_s=1.0)
    before = usage(tmp_path, 1)
    cleared = clear(tmp_path)
    assert (cleared.bytes, cleared.shelves, cleared.stayed) == (before.bytes, before.shelves, 0)
    assert [each.entries for each in cleared.shelves] == [1, 1, 1, 1, 1, 1]
    assert usage(tmp_path, 1).bytes == 0
    assert clear(tmp_path / "nowhere").bytes == 0


def test_a_link_in_the_cache_is_no_way_out(tmp_path):
    outside = tmp_path / "outside" / "mine"
    outside.mkdir(parents=True)
    (outside / "file").write_text("x")
    cache = tmp_path / "cache"
    (cache / "builds").mkdir(parents=True)
    (cache / "builds" / "aa").symlink_to(outside.parent)
    clear(cache)
    make_room(cache, 1, AT_ONCE)
    assert (outside / "file").exists()


WRITER = """
import itertools, os, sys
from pathlib import Path
from evaluator.cache import eviction
from evaluator.cache.build_cache import BuildCache
from tests.unit.cache.test_eviction import key, LIBRARY

eviction.RECENT_S = float(sys.argv[3])
print("ready", flush=True)
cache = BuildCache(Path(sys.argv[1]))
for number in itertools.count(int(sys.argv[2])):
    cache.put(key(number), str(number).encode() + LIBRARY, log="", wall_s=1.0)
    entry = cache.get(key(number - 7))
    assert entry is None or entry.library == str(number - 7).encode() + LIBRARY
    print(number, flush=True)
"""


def start_writer(root, first, *, recent_s, limit):
    environment = {**os.environ, "WARPGRADE_CACHE_LIMIT": limit, "PYTHONPATH": str(TOP)}
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, root, str(first), str(recent_s)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,  # A line that was read ahead would be missing in `stop_writer`.
    )
    assert process.stdout.readline() == b"ready\n", process.stderr.read()
    return process


def until_finished(process, number):
    """Wait until the writer has finished the entry `number`."""
    while int(process.stdout.readline() or pytest.fail(process.stderr.read().decode())) < number:
        pass


def stop_writer(process):
    """Kill a live writer, and give the number of the last entry since the last call."""
    assert process.poll() is None, process.stderr.read()
    process.kill()
    out, _ = process.communicate()
    assert process.returncode == -signal.SIGKILL
    finished = [int(line) for line in out.splitlines(keepends=True) if line.endswith(b"\n")]
    return max(finished, default=None)


def check_whole(root, *, namespace=CacheNamespace.BUILDS):
    """Assert that every entry that can be seen is whole and its own; give their number."""
    entries = [path for path in (root / namespace).glob("??/[0-9a-f]*") if path.is_dir()]
    for entry in entries:
        read = BuildCache(root).get(entry.name)
        assert read is not None
        number = read.library[: -len(LIBRARY)].decode()
        assert (key(number), read.library[-len(LIBRARY) :]) == (entry.name, LIBRARY)
    return len(entries)


@pytest.mark.slow
def test_writers_killed_at_any_moment_leave_whole_entries_or_none(tmp_path):
    """Writers that also evict: the limit is a few entries."""
    first = 0
    for turn in range(6):
        writer = start_writer(tmp_path, first, recent_s=-1.0, limit="1MiB")
        time.sleep(0.01 + 0.034 * turn)
        last = stop_writer(writer)
        first = first + 1 if last is None else last + 1
        check_whole(tmp_path)
    writer = start_writer(tmp_path, first, recent_s=-1.0, limit="1MiB")
    until_finished(writer, first + 12)
    stop_writer(writer)
    for leftover in hidden(tmp_path):
        os.utime(leftover, (0, 0))
    make_room(tmp_path, 1 << 20, AT_ONCE)
    assert hidden(tmp_path) == []
    assert 0 < check_whole(tmp_path) <= 10


def test_several_processes_write_read_and_evict_at_once(tmp_path, monkeypatch):
    """They write the same entries, so that they also get in each other's way, hundreds in a second."""
    writers = [start_writer(tmp_path, first, recent_s=-1.0, limit="600KB") for first in (0, 0, 3)]
    for writer in writers:
        until_finished(writer, 40)
    deadline = time.monotonic() + 120
    while folder(tmp_path, 0).exists():  # the oldest entry, until an eviction
        assert time.monotonic() < deadline
        time.sleep(0.01)
    for writer in writers:
        stop_writer(writer)
    assert check_whole(tmp_path) > 0
    monkeypatch.setattr(eviction, "RECENT_S", -1.0)
    make_room(tmp_path, 600_000, AT_ONCE)
    assert 0 < check_whole(tmp_path) <= 5


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], check=False).returncode:
        pytest.skip("mounting is not allowed here")
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_full_disk_keeps_what_is_whole_and_has_room_again_after_an_eviction(small_disk):
    for number in range(20):
        BuildCache(small_disk).put(key(number), str(number).encode() + LIBRARY, log="", wall_s=1.0)
    kept = check_whole(small_disk)
    assert 5 <= kept <= 10
    assert hidden(small_disk) == []
    (small_disk / "filler").write_bytes(bytes(os.statvfs(small_disk).f_bavail * 4096))
    assert os.statvfs(small_disk).f_bavail == 0
    for number in left(small_disk, range(20)):
        os.utime(folder(small_disk, number), (0, 0))
    make_room(small_disk, 250_000, AT_ONCE)
    assert check_whole(small_disk) == 2
    BuildCache(small_disk).put(key(99), b"99" + LIBRARY, log="", wall_s=1.0)
    assert check_whole(small_disk) == 3


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("10GiB", 10 << 30), ("10 gib", 10 << 30), ("20GB", 20 * 10**9), ("1Ki", 1024), ("0.5M", 500_000), ("7b", 7)],
)
def test_sizes_are_read(text, size_bytes):
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize("text", ["", "0", "0GB", "-1", "much", "10 gallons", "1e9", "inf", "nan", "9" * 30, "1G1"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(UsageError, match="is not a size"):
        parse_size(text)


def test_a_wrong_limit_is_told_before_anything_is_built(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPGRADE_CACHE_LIMIT", "lots")
    with pytest.raises(UsageError):
        BuildCache(tmp_path)
    monkeypatch.setenv("WARPGRADE_CACHE_LIMIT", "")
    assert eviction.cache_limit_bytes() == 10 << 30
