"""Refused inputs of a run, RUN/refused.jsonl: a line for each refusal.

The place identifies an input, and the content also a line of a stream: a repeated batch adds no second line. A session
with all inputs read removes outdated refusals.
"""

import errno
import os
from collections.abc import Callable
from typing import Self

import msgspec

from evaluator.batch.runs.run_folder import RunFolder, not_written, read_lines, replace_file
from evaluator.batch.runs.tasks import Refused, Task
from evaluator.files.safe_open import open_to_append

_MAX_BYTES = 64 << 20
"""A line has about 300 bytes: 220,000 refused inputs."""
_REMEDY = "remove the file: the same batch refuses and records the inputs again"
_Key = tuple[str, str | None]


def read_refusals(folder: RunFolder) -> list[Refused]:
    """Read the refused inputs of a run. A run of an older version has no file. A cut line is ignored.

    Raises:
        CardError: the file cannot be read, or is too large.
    """
    lines = read_lines(folder.path, folder.refused.name, Refused, _MAX_BYTES, _REMEDY)
    return list({_key(refused): refused for refused in lines}.values())


class Refusals:
    """Refused inputs of a run, open for writing. A context manager."""

    def __init__(self, folder: RunFolder, is_read: Callable[[Refused], bool]) -> None:
        """Read the refused inputs.

        `is_read` tells whether a session with all inputs read comes across an earlier refused input, if still present.

        Raises:
            CardError: the file cannot be read.
            InfraError: the file cannot be written.
        """
        self._folder = folder
        self._is_read = is_read
        self._earlier = {_key(refused): refused for refused in read_refusals(folder)}
        self._now: dict[_Key, Refused] = {}
        self._accepted: set[tuple[str, str]] = set()
        try:
            self._file = open_to_append(folder.path, folder.refused.name)
            if self._file.tell():
                self._file.write(b"\n")  # ends a line cut by a crash or a full disk
        except OSError as error:
            raise not_written(folder.refused, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def accept(self, task: Task) -> None:
        """Count a submission as accepted: an earlier refusal of the same name does not hold any more."""
        if self._earlier:
            self._accepted.add((task.problem.name, task.name))

    def add(self, refused: Refused) -> None:
        """Append a refused input unless the file has the same line. Raises InfraError if the disk is full."""
        key = _key(refused)
        if refused not in (self._now.get(key), self._earlier.get(key)):
            line = msgspec.json.encode(refused) + b"\n"
            try:
                written_bytes = self._file.write(line)
            except OSError as error:
                raise not_written(self._folder.refused, error) from error
            if written_bytes != len(line):  # the disk is almost full
                raise not_written(self._folder.refused, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        self._now[key] = refused

    def complete(self) -> None:
        """Remove outdated refusals: all inputs of the session were read."""
        current = {key: refused for key, refused in self._earlier.items() if not self._is_settled(refused)} | self._now
        if current != self._earlier | self._now:
            replace_file(
                self._folder.refused, b"".join(msgspec.json.encode(refused) + b"\n" for refused in current.values())
            )

    def _is_settled(self, earlier: Refused) -> bool:
        return self._is_read(earlier) or (earlier.problem, earlier.name) in self._accepted


def _key(refused: Refused) -> _Key:
    return refused.origin, refused.sha256
