"""The command line, started by an ordinary user and inside a container with the default profile.

Tests often run as root, for whom more layers of the sandbox are available. `guise.py` therefore starts the command line
as another user, with a correct hostile submission: the verdict is `correct` only if every attack failed.
"""

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import msgspec
import psutil
import pytest

from evaluator.cache.eviction import CacheNamespace
from evaluator.files.card_files import read_card
from evaluator.records import Scorecard, Status
from evaluator.sandbox.kernel import landlock
from tests import once

HERE = Path(__file__).parent
CHECKOUT = HERE.parents[1]
USER = 54_321
SHARED_FOLDERS = ("/tmp", "/dev/shm")
_LIMIT_S = 800
_NEEDS_NAMESPACES = {
    *("private-file-view", "process-namespace", "network-namespace", "ipc-namespace", "own-proc", "folder-quota"),
}


class Setting(StrEnum):
    USER = "an ordinary user"
    CONTAINER = "an ordinary user in a container"
    CONTAINER_ROOT = "root in a container"


class Answer(NamedTuple):
    code: int
    out: str
    err: str
    card: Scorecard | None


class Place(NamedTuple):
    """The home of a setting's user, with every target of the hostile submission."""

    setting: Setting
    home: Path
    beside: Path
    targets: dict

    @property
    def user(self):
        return USER if os.geteuid() == 0 and self.setting is not Setting.CONTAINER_ROOT else os.geteuid()

    def command(self, *argv, landlock_there=True):
        guise = {
            "user": self.user,
            "contained": self.setting is not Setting.USER,
            "landlock": landlock_there,
            "open": [sys.base_prefix, sys.prefix, str(CHECKOUT)],
        }
        return [sys.executable, "-B", str(HERE / "guise.py"), json.dumps(guise), *argv]

    def run(self, *argv, **options):
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), "TMPDIR": str(self.home / "tmp")}
        return subprocess.run(
            self.command(*argv, **options),
            cwd=self.home,
            env={**environment, "WARPGRADE_CACHE": str(self.home / "cache"), "COLUMNS": "80"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )

    def warpgrade(self, *arguments, **options):
        return self.run(sys.executable, "-B", str(CHECKOUT / "cli.py"), *arguments, **options)

    def grade(self, *options, **others):
        """Grade the hostile submission on the CPU."""
        source = (HERE / "hostile.py").read_text(encoding="utf-8")
        submission = self.home / "mine.py"
        submission.write_text(source.replace('"""TARGETS"""', repr(json.dumps(self.targets))), encoding="utf-8")
        submission.chmod(0o644)
        card = self.home / "cards" / "card.json"
        card.unlink(missing_ok=True)
        sized = ("--device", "cpu", "--size", "awkward", "--timeout", "20", "--output", str(card))
        done = self.warpgrade("grade", "relu", str(submission), *sized, *options, **others)
        return Answer(done.returncode, done.stdout, done.stderr, read_card(card) if card.exists() else None)

    def planted(self):
        """List the files that the submission left within reach of other processes."""
        return [at for at in map(Path, self.targets["folders"] + self.targets["own_folders"]) if self._in(at).exists()]

    def left_running(self):
        return [each.pid for each in psutil.process_iter(["name"]) if each.info["name"] == self.targets["name"]]

    def clean(self):
        for folder in self.planted():
            self._in(folder).unlink()

    def _in(self, folder):
        return folder / self.targets["name"]


@pytest.fixture(scope="module", params=Setting, ids=lambda setting: setting.name)
def place(request):
    setting = request.param
    if setting is Setting.CONTAINER_ROOT and os.geteuid() != 0:
        pytest.skip("only root can start as root")
    if setting is not Setting.USER and landlock.abi() < landlock.SIGNALS_ABI:
        pytest.skip(f"Landlock ABI {landlock.abi()} here")
    # Not in /tmp: a runner has a private /tmp in memory, so a file written to /tmp would prove nothing.
    with (
        tempfile.TemporaryDirectory(dir="/var/tmp", prefix="settings-") as name,
        tempfile.TemporaryDirectory(dir=sys.prefix, prefix="settings-") as beside,
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        home = Path(name)
        home.chmod(0o755)
        for folder in ("tmp", "cache", "cards"):
            (home / folder).mkdir()
        if setting is not Setting.USER:
            copy_own_libraries(home / "cache")
        own, others, state = home / "own", home / "others", Path(beside, "own")
        state.parent.chmod(0o755)
        for secret, mode in ((own, 0o600), (others, 0o644), (state, 0o600)):
            secret.write_text("the seeds")
            secret.chmod(mode)
        folders = [home, *(home / name for name in ("tmp", "cache", "cards"))]
        made = Place(
            setting,
            home,
            state.parent,
            {
                "name": f"left-{secrets.token_hex(4)}",
                "secrets": [str(own), str(others), str(state), "/etc/shadow"],
                "folders": [str(folder) for folder in folders],
                "own_folders": list(SHARED_FOLDERS),
                "port": server.getsockname()[1],
                "bystander": 0,
            },
        )
        for path in (*folders, own, state):
            os.chown(path, made.user, made.user if os.geteuid() == 0 else -1)
        with subprocess.Popen(made.command("/bin/sleep", "36000"), stderr=subprocess.PIPE, text=True) as bystander:
            made.targets["bystander"] = bystander.pid
            try:
                insist_on_a_start(made, bystander)
                yield made
                assert bystander.poll() is None, "it was killed"
            finally:
                bystander.kill()
                made.clean()


def copy_own_libraries(cache):
    """Copy the libraries of Warpgrade that other tests have built; one setting builds every library anew.

    Other tests may write to the cache meanwhile: other entries come and go, and unfinished libraries have hidden names.
    """
    parts = once.folder_for("cache") / CacheNamespace.PARTS
    if parts.exists():
        shutil.copytree(parts, cache / CacheNamespace.PARTS, ignore=shutil.ignore_patterns(".*"))


def insist_on_a_start(place, bystander):
    """Skip if the setting is unavailable: the user cannot reach Python, or may not mount."""
    deadline = time.monotonic() + 120
    while Path(f"/proc/{bystander.pid}/comm").read_text().strip() != "sleep":
        if bystander.poll() is not None or time.monotonic() > deadline:
            pytest.skip(f"no process can be {place.setting} here: {bystander.communicate(timeout=5)[1].strip()[-300:]}")
        time.sleep(0.02)
    seen = place.run(
        sys.executable, "-B", "-c", f"import sys; sys.path.insert(0, {str(CHECKOUT)!r}); import torch, cli"
    )
    if seen.returncode:
        pytest.skip(f"{place.setting} cannot import this checkout: {seen.stderr.strip()[-300:]}")
    refused = place.run("/usr/bin/unshare", "--user", "/bin/true").returncode
    if place.setting is Setting.USER and refused:
        pytest.skip("ordinary users get no user namespaces here")
    assert bool(refused) == (place.setting is not Setting.USER)


def missing_in(setting):
    match setting:
        case Setting.USER:
            return set()
        case Setting.CONTAINER:
            return {*_NEEDS_NAMESPACES, "own-user"}
        case Setting.CONTAINER_ROOT:
            return _NEEDS_NAMESPACES


PROPERTIES = {
    "files of others are not read": ("read {home}/others",),
    "the judge's own files are not read": ("read {home}/own",),
    "the judge's files beside its Python are not read": ("read {beside}/own",),
    "nothing is written outside": ("wrote {home}", "wrote {home}/tmp", "wrote {home}/cache", "wrote {home}/cards"),
    "there is no network": ("connected", "sent a datagram"),
    "other processes are not read": ("opened another's environ",),
    "other processes are not signalled": ("signalled another",),
    "nothing survives into the next runner": ("found what an earlier runner left in /tmp",),
}
"""For each property, the words with which the submission reports a violation."""


@pytest.fixture(scope="module")
def confined(place):
    """One grade in the sandbox, and the files and processes left behind, listed before any cleanup.

    Where no layer is missing, the grade asks for every layer.
    """
    graded = place.grade(*(() if missing_in(place.setting) else ("--strict",)))
    assert graded.card is not None, graded.err
    return graded, place.planted(), place.left_running()


@pytest.fixture(scope="module")
def unconfined(place, confined):
    """A grade of the same submission without a sandbox, which finds the files that an earlier grade would leave."""
    try:
        for folder in SHARED_FOLDERS:
            Path(folder, place.targets["name"]).touch()
        graded = place.grade("--sandbox", "none")
    finally:
        place.clean()
    assert graded.card is not None, graded.err
    assert place.left_running() == []
    return graded


def test_a_hostile_submission_that_is_right_is_correct(place, confined):
    graded, planted, running = confined
    assert (graded.card.status, graded.code) == (Status.CORRECT, 0), graded.card.reason
    assert set(graded.card.sandbox.missing) == missing_in(place.setting)
    assert planted == []
    assert running == []


def test_every_property_holds_only_in_the_sandbox(place, confined, unconfined):
    """One test, for processes of pytest that share the properties of a setting would repeat its two grades."""
    behind = msgspec.json.encode(confined[0].card.reason).decode()
    without = msgspec.json.encode(unconfined.card.reason).decode()
    probes = {
        probe.format(home=place.home, beside=place.beside): what
        for what, listed in PROPERTIES.items()
        for probe in listed
    }
    assert {what for probe, what in probes.items() if probe in behind} == set()
    assert {what for probe, what in probes.items() if probe not in without} == set()


def test_without_a_sandbox_a_submission_keeps_its_rights(place, unconfined):
    """The probes of rights can fail: an ordinary user's program has neither a seccomp filter nor no_new_privs."""
    if place.setting is not Setting.USER:
        pytest.skip("a container filters by itself")
    said = msgspec.json.encode(unconfined.card.reason).decode()
    assert "has NoNewPrivs 0" in said
    assert "has Seccomp 0" in said


def test_strict_names_the_missing_layers(place):
    missing = missing_in(place.setting)
    if not missing:
        pytest.skip("nothing is missing")
    graded = place.grade("--strict")
    assert graded.code == 3
    assert graded.card is None
    assert graded.out == ""
    assert "--strict requires every layer" in graded.err
    assert "Traceback" not in graded.err
    assert all(layer in graded.err for layer in missing)


@pytest.mark.long
def test_the_doctor_can_grade_and_says_how_to_get_what_is_missing(place):
    seen = place.warpgrade("doctor", "--deep", "--json")
    lines = {line["name"]: line for line in json.loads(seen.stdout)["lines"]}
    assert seen.returncode == 0
    assert lines["sandbox"]["ok"]
    for layer in missing_in(place.setting):
        assert layer in lines["sandbox"]["found"]
    assert ("user namespaces" in lines["sandbox"]["fix"]) == bool(missing_in(place.setting))


def test_without_a_wall_around_files_nothing_is_graded(place):
    if place.setting is Setting.USER:
        pytest.skip("there are namespaces")
    graded = place.grade(landlock_there=False)
    assert (graded.code, graded.card, graded.out) == (3, None, "")
    assert "neither a private mount namespace nor Landlock" in graded.err
    assert "hint: " in graded.err
    assert "Traceback" not in graded.err
    assert place.planted() == []
