"""Folder of a run: the options (manifest.json), the submissions (plan.jsonl), and one card for each grade.

    RUN/manifest.json          options, and the host and versions of the first session
    RUN/plan.jsonl             one line for each submission that was read; without a card it counts as missing
    RUN/refused.jsonl          a line for each refused input
    RUN/cards/PROBLEM/NAME.json
    RUN/index.sqlite           made from the cards; rebuilt if missing
    RUN/logs/                  log of events, timelines of the sessions, output of the workers

Cards and plan are the source of truth, and both survive a crash at any time. Cards are written by a rename, and an
incomplete line of the plan is ignored.
"""

import contextlib
import datetime
import errno
import importlib.metadata
import os
import platform
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Self, TypeVar

import filelock
import msgspec

from evaluator.batch.runs.manifest import RunManifest
from evaluator.batch.runs.tasks import Planned
from evaluator.errors import CardError, InfraError, UsageError
from evaluator.files.card_files import is_unfinished, write_whole
from evaluator.files.safe_open import open_to_append, read_found
from evaluator.grade_options import GradeOptions
from evaluator.records import Record
from evaluator.sandbox.visible_files import refuse_readable
from evaluator.submission.read import STDIN
from evaluator.version import __version__

R = TypeVar("R", bound=Record)
_FILLED = re.compile(rb"\S[^\n]*")


def read_lines(folder: Path, name: str, record: type[R], most_bytes: int, hint: str) -> Iterator[R]:
    """Read the records of a file in the folder of a run; none without the file. A line cut by a crash is ignored.

    Raises:
        CardError: the file cannot be read, or has more than `most_bytes`; `hint` is the remedy for such a file.
    """
    path = folder / name
    try:
        content = read_found(folder, name, most_bytes)
    except FileNotFoundError:
        return
    except OSError as error:
        raise CardError(f"cannot read {path}: {error.strerror or error}") from error
    if len(content) > most_bytes:
        raise CardError(f"{path} is larger than {most_bytes >> 20} MiB, the limit for this file", hint=hint)
    decoder = msgspec.json.Decoder(record)
    for match in _FILLED.finditer(content):
        try:
            yield decoder.decode(match[0])
        except (ValueError, RecursionError):
            continue


_MOSTLY_OUTDATED = 2
_MAX_MANIFEST_BYTES = 1 << 20
_MAX_PLAN_BYTES = 256 << 20
"""A line of a plan has about 400 bytes: 670,000 submissions."""
_REMEDY = "split the submissions over several runs with --shard"
_UNSAID = {
    "size": "the device's own size",
    "timeout_s": "the judge's own timeout",
    "deadline_s": "the judge's own deadline",
    "require_own_kernel": "no required share of own kernels",
    "weights": "what each problem says of weights",
    "l2": "what each problem says of the L2 cache",
    "entry": "the class ModelNew, else Model",
    "problems": "the shipped problems",
}
"""Text for an option without a value; any other option reads `no NAME`."""


class RunFolder:
    """Paths of a run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest = path / "manifest.json"
        self.plan = path / "plan.jsonl"
        self.refused = path / "refused.jsonl"
        self.cards = path / "cards"
        self.index = path / "index.sqlite"
        self.logs = path / "logs"

    def read_manifest(self) -> RunManifest:
        """Read the manifest. Raises CardError if the path is no run folder."""
        try:
            content = read_found(self.path, self.manifest.name, _MAX_MANIFEST_BYTES)
            return msgspec.json.decode(content, type=RunManifest)
        except OSError as error:
            hint = "name a folder created by `warpgrade batch --run`"
            cause = "it has no manifest.json" if self.path.is_dir() and not self.manifest.exists() else error.strerror
            raise CardError(f"{self.path} is not a run folder: {cause}", hint=hint) from error
        except (ValueError, RecursionError) as error:
            raise CardError(f"{self.manifest} is not a run manifest: {error}") from error

    def read_plan(self) -> dict[str, Planned]:
        """Read the plan, by card. The last line for a card wins.

        Raises:
            CardError: the file cannot be read, or is too large.
        """
        lines = read_lines(self.path, self.plan.name, Planned, _MAX_PLAN_BYTES, _REMEDY)
        return {planned.card: planned for planned in lines}


class LinesFile:
    """File with a record in each line, open for appending. A context manager."""

    def __init__(self, path: Path) -> None:
        """Open the file. Raises InfraError if the file cannot be written."""
        self.path = path
        try:
            self._file = open_to_append(path.parent, path.name)
            if self._file.tell():
                self._file.write(b"\n")  # ends a line cut by a crash or a full disk
        except OSError as error:
            raise not_written(path, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def append(self, record: Record) -> None:
        """Append a line. Raises InfraError if the disk is full."""
        line = lines_of([record])
        try:
            written_bytes = self._file.write(line)
        except OSError as error:
            raise not_written(self.path, error) from error
        if written_bytes != len(line):  # the disk is almost full
            raise not_written(self.path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))


def lines_of(records: Iterable[Record]) -> bytes:
    """Return the lines of records."""
    return b"".join(msgspec.json.encode(record) + b"\n" for record in records)


class PlanFile(LinesFile):
    """The plan of a run, open for writing."""

    def __init__(self, folder: RunFolder) -> None:
        """Read the plan and open the file for appending. Rewrite the file if most lines are outdated."""
        self._known = folder.read_plan()
        content = lines_of(self._known.values())
        if self._known and folder.plan.stat().st_size > _MOSTLY_OUTDATED * len(content):
            replace_file(folder.plan, content)
        super().__init__(folder.plan)

    def by_origin(self) -> dict[str, Planned]:
        """Return the planned submissions with a stamp, by path."""
        return {planned.origin: planned for planned in self._known.values() if planned.stamp is not None}

    def add(self, planned: Planned) -> None:
        """Append a line unless the plan has the same. Raises InfraError if the disk is full."""
        if self._known.get(planned.card) != planned:
            self.append(planned)
            self._known[planned.card] = planned


@contextlib.contextmanager
def opened(path: Path, wanted: RunManifest, *, fresh: bool = False) -> Iterator[RunFolder]:
    """Create or resume a run folder, under an exclusive lock.

    Args:
        path: the folder; created if missing.
        wanted: the manifest of the new session.
        fresh: remove the results of earlier sessions.

    Raises:
        UsageError: another batch uses the folder, the folder holds other files, submissions can read the folder, or
            the manifest differs.
        InfraError: the disk is full or broken.
    """
    folder = RunFolder(path)
    refuse_readable(path, "the run folder")
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
            replace_file(folder.manifest, msgspec.json.format(msgspec.json.encode(wanted), indent=2) + b"\n")
        try:
            folder.cards.mkdir(exist_ok=True)
        except OSError as error:
            raise not_written(folder.cards, error) from error
        yield folder
    finally:
        lock.release()


def manifest_for(options: GradeOptions, submissions: str, level_sizes: Mapping[int, int] | None = None) -> RunManifest:
    """Return the manifest of a run that starts now on this machine."""
    return RunManifest(
        terms=options.terms,
        problems=str(options.problems.resolve()) if options.problems is not None else None,
        submissions=_canonical_path(submissions),
        started_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        warpgrade=__version__,
        python=platform.python_version(),
        torch=importlib.metadata.version("torch"),
        host=platform.node(),
        level_sizes=dict(level_sizes or {}),
    )


def _refuse_strangers(folder: RunFolder) -> None:
    """Raise UsageError for a folder with other files: never write into the folder or clear the folder."""
    own_names = {".lock", "logs", "manifest.json"}  # left by a run with a crash at the start
    if not folder.path.is_dir() or folder.manifest.exists():
        return
    if any(path.name not in own_names and not is_unfinished(path.name) for path in folder.path.iterdir()):
        raise UsageError(f"{folder.path} contains files that are not a run's", hint="name a new folder with --run")


def _canonical_path(submissions: str) -> str:
    """Return the canonical path of the submissions; the text itself for a pipe or a missing path."""
    path = Path(submissions)
    lasts = submissions != STDIN and (path.is_dir() or path.is_file())
    return str(path.resolve()) if lasts else submissions


def _compare(existing: RunManifest, requested: RunManifest, path: Path) -> None:
    old, new = _fixed_values(existing), _fixed_values(requested)
    changed = [f"{old[name]}, not {new[name]}" for name in new if old[name] != new[name]]
    if changed:
        hint = "name another folder with --run, or start over with --fresh, which removes the cards"
        raise UsageError(f"{path} was started with {'; '.join(changed)}", hint=hint)


def _fixed_values(manifest: RunManifest) -> dict[str, str]:
    """Return the texts of all values that must be the same in every session of a run."""
    terms = msgspec.to_builtins(manifest.terms)
    places = {"problems": manifest.problems, "submissions": _canonical_path(manifest.submissions)}
    return {name: _value_text(name, value) for name, value in (terms | places).items()}


def _value_text(name: str, value: object) -> str:
    match value:
        case None | []:
            return _UNSAID.get(name, f"no {name}")
        case bool():
            return f"{name} {'on' if value else 'off'}"
        case list() | tuple():
            return f"{name} {', '.join(value)}"
        case _:
            return f"{name} {value}"


def not_written(path: Path, error: OSError) -> InfraError:
    """Return the error for a failed write. Earlier files are complete."""
    hint = "free disk space; all cards so far are kept: repeat the command to resume"
    return InfraError(f"cannot write {path}: {error.strerror or error}", hint=hint)


def replace_file(path: Path, content: bytes) -> None:
    """Write a file atomically. Raises InfraError if the disk is full."""
    try:
        write_whole(path, content)
    except OSError as error:
        raise not_written(path, error) from error


def _clear(folder: RunFolder) -> None:
    # Remove the manifest last: a folder with a manifest is recognised as a run folder.
    shutil.rmtree(folder.cards, ignore_errors=True)
    shutil.rmtree(folder.logs, ignore_errors=True)
    folder.logs.mkdir(exist_ok=True)
    for path in (
        folder.plan,
        folder.refused,
        *folder.path.glob(f"{folder.index.name}*"),
        folder.manifest,
    ):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108 - of a link, the link
