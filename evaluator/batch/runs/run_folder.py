"""The folder of a run: what was asked (manifest.json), what was handed in (plan.jsonl), and a card for each grade.

    RUN/manifest.json          the terms, and who began it
    RUN/plan.jsonl             one line for each submission as it is read in; those without a card are missing
    RUN/cards/PROBLEM/NAME.json
    RUN/index.sqlite           made from the cards, and made again where it is not there
    RUN/logs/                  what happened when, and what workers printed

Cards and plan are the truth. Both survive a death at any moment: a card is renamed into place, a line of the plan that
is not whole is passed over.
"""

import contextlib
import datetime
import errno
import importlib.metadata
import os
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import filelock
import msgspec

from evaluator.batch.runs.manifest import RunManifest
from evaluator.batch.runs.tasks import Planned, Task
from evaluator.errors import CardError, InfraError, UsageError
from evaluator.files.card_files import is_unfinished, write_whole
from evaluator.files.safe_open import open_to_append, read_found
from evaluator.grade_options import GradeOptions
from evaluator.records import Record
from evaluator.submission.read import STDIN
from evaluator.version import __version__

_MOSTLY_OUTDATED = 2
_MAX_MANIFEST_BYTES = 1 << 20
_MAX_PLAN_BYTES = 1 << 30
"""A line of a plan has some 400 bytes."""
_UNSAID = {
    "size": "the device's own size",
    "timeout_s": "the judge's own timeout",
    "deadline_s": "the judge's own deadline",
    "require_own_kernel": "no required share of own kernels",
    "weights": "what each problem says of weights",
    "problems": "the shipped problems",
}
"""What it means where nothing was said; for any other option, that there is none of it."""


class RunFolder(Record, frozen=True):
    """The paths of a run."""

    path: Path

    @property
    def manifest(self) -> Path:
        """What was asked."""
        return self.path / "manifest.json"

    @property
    def plan(self) -> Path:
        """What was handed in."""
        return self.path / "plan.jsonl"

    @property
    def cards(self) -> Path:
        """The scorecards, by problem."""
        return self.path / "cards"

    @property
    def index(self) -> Path:
        """The cards' summaries, for SQL."""
        return self.path / "index.sqlite"

    @property
    def logs(self) -> Path:
        """What happened, for people."""
        return self.path / "logs"

    def read_manifest(self) -> RunManifest:
        """Read what was asked. Raises CardError where this is no run's folder."""
        try:
            content = read_found(self.path, self.manifest.name, _MAX_MANIFEST_BYTES)
            return msgspec.json.decode(content, type=RunManifest)
        except OSError as error:
            hint = "name a folder created by `warpgrade batch --run`"
            why = "it has no manifest.json" if self.path.is_dir() and not self.manifest.exists() else error.strerror
            raise CardError(f"{self.path} is not a run folder: {why}", hint=hint) from error
        except (ValueError, RecursionError) as error:
            raise CardError(f"{self.manifest} is not a run manifest: {error}") from error

    def read_plan(self) -> dict[str, Planned]:
        """Read what was handed in, by card; of two lines on one card the later counts.

        Raises:
            CardError: something else than a plan lies there, or it cannot be read.
        """
        try:
            lines = read_found(self.path, self.plan.name, _MAX_PLAN_BYTES).splitlines()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise CardError(f"cannot read {self.plan}: {error.strerror or error}") from error
        decoder = msgspec.json.Decoder(Planned)
        planned = {}
        for line in lines:
            try:
                one = decoder.decode(line)
            except (ValueError, RecursionError):
                continue  # a death in the middle of a line: that submission will be read in again
            planned[one.card] = one
        return planned


class Plan:
    """The plan of a run, being written. A context manager."""

    def __init__(self, folder: RunFolder) -> None:
        """Read what is there and open it for more. Where most of it is outdated, it is written anew."""
        self._path = folder.plan
        self._known = folder.read_plan()
        whole = b"".join(msgspec.json.encode(planned) + b"\n" for planned in self._known.values())
        if self._known and folder.plan.stat().st_size > _MOSTLY_OUTDATED * len(whole):
            _replace(folder.plan, whole)
        try:
            self._file = open_to_append(folder.path, folder.plan.name)
            self._file.write(b"\n")  # ends the line that a death, or a full disk, may have cut
        except OSError as error:
            raise not_written(folder.plan, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def by_origin(self) -> dict[str, Planned]:
        """Give what is known of files, by their paths."""
        return {planned.origin: planned for planned in self._known.values() if planned.stamp is not None}

    def add(self, task: Task) -> None:
        """Write `task` down unless it stands there already. Raises InfraError where there is no room."""
        planned = Planned(
            card=task.card,
            problem=task.problem.name,
            level=task.problem.level,
            name=task.name,
            origin=task.origin,
            problem_sha256=task.problem.sha256,
            submission_sha256=task.submission_sha256,
            stamp=task.stamp,
        )
        if self._known.get(planned.card) != planned:
            line = msgspec.json.encode(planned) + b"\n"
            try:
                written = self._file.write(line)
            except OSError as error:
                raise not_written(self._path, error) from error
            if written != len(line):  # the last bytes of a disk
                raise not_written(self._path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
            self._known[planned.card] = planned


@contextlib.contextmanager
def opened(path: Path, wanted: RunManifest, *, fresh: bool = False) -> Iterator[RunFolder]:
    """Have the folder of a run to oneself: a new one, or one with the same terms and places to go on with.

    Args:
        path: the folder; it is made where it is missing.
        wanted: what is asked for now.
        fresh: remove what an earlier run left there.

    Raises:
        UsageError: another batch is at work on it, it holds something else, or it was begun on other terms.
        InfraError: the disk is full or broken.
    """
    folder = RunFolder(path)
    try:
        _refuse_strangers(folder)
        folder.logs.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(path / ".lock")
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise UsageError(
            f"another batch is using {path}", hint="wait for the other batch, or name another folder with --run"
        ) from None
    except OSError as error:
        raise UsageError(f"cannot use {path} as a run folder: {error.strerror or error}") from error
    try:
        if fresh:
            _clear(folder)
        if folder.manifest.exists():
            _compare(folder.read_manifest(), wanted, path)
        else:
            _write_manifest(folder, wanted)
        folder.cards.mkdir(exist_ok=True)
        yield folder
    finally:
        lock.release()


def manifest_for(options: GradeOptions, submissions: str) -> RunManifest:
    """Describe a run that begins now, here."""
    return RunManifest(
        terms=options.terms,
        problems=str(options.problems.resolve()) if options.problems is not None else None,
        submissions=_place(submissions),
        started_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        warpgrade=__version__,
        python=platform.python_version(),
        torch=importlib.metadata.version("torch"),
        host=platform.node(),
    )


def _refuse_strangers(folder: RunFolder) -> None:
    """What is not a run's is never written into, and never cleared."""
    ours = {".lock", "logs", "manifest.json"}  # what is there when a run dies at once
    if not folder.path.is_dir() or folder.manifest.exists():
        return
    if any(each.name not in ours and not is_unfinished(each.name) for each in folder.path.iterdir()):
        raise UsageError(f"{folder.path} contains files that are not a run's", hint="name a new folder with --run")


def _place(submissions: str) -> str:
    """Spell a place of submissions in the one way; what is gone, or a pipe, has only the text that it was given by."""
    path = Path(submissions)
    lasts = submissions != STDIN and (path.is_dir() or path.is_file())
    return str(path.resolve()) if lasts else submissions


def _compare(begun: RunManifest, wanted: RunManifest, path: Path) -> None:
    before, now = _asked(begun), _asked(wanted)
    changed = [f"{before[name]}, not {now[name]}" for name in now if before[name] != now[name]]
    if changed:
        hint = "name another folder with --run, or start over with --fresh, which removes the cards"
        raise UsageError(f"{path} was started with {'; '.join(changed)}", hint=hint)


def _asked(manifest: RunManifest) -> dict[str, str]:
    """Put into words what every session on a run must share."""
    terms = msgspec.to_builtins(manifest.terms)
    places = {"problems": manifest.problems, "submissions": _place(manifest.submissions)}
    return {name: _in_words(name, value) for name, value in (terms | places).items()}


def _in_words(name: str, value: object) -> str:
    match value:
        case None | []:
            return _UNSAID.get(name, f"no {name}")
        case bool():
            return f"{name} {'on' if value else 'off'}"
        case list() | tuple():
            return f"{name} {', '.join(value)}"
        case _:
            return f"{name} {value}"


def _write_manifest(folder: RunFolder, manifest: RunManifest) -> None:
    _replace(folder.manifest, msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")


def not_written(path: Path, error: OSError) -> InfraError:
    """Say that something of a run could not be written. What is there is whole."""
    hint = "free disk space; all cards so far are kept: repeat the command to resume"
    return InfraError(f"cannot write {path}: {error.strerror or error}", hint=hint)


def _replace(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    try:
        write_whole(path, content)
    except OSError as error:
        raise not_written(path, error) from error


def _clear(folder: RunFolder) -> None:
    # The manifest last: while there is one, this is known to be a run's folder.
    shutil.rmtree(folder.cards, ignore_errors=True)
    shutil.rmtree(folder.logs, ignore_errors=True)
    folder.logs.mkdir(exist_ok=True)
    for path in (folder.plan, *folder.path.glob(f"{folder.index.name}*"), folder.manifest):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108 - of a link, the link
