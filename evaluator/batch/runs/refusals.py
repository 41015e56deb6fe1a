"""Refused inputs of a run, RUN/refused.jsonl: a line for each refusal.

The place identifies an input, and the content also a line of a stream: a repeated batch adds no second line. A session
with all inputs read removes outdated refusals.
"""

from collections.abc import Callable

from evaluator.batch.runs.run_folder import LinesFile, RunFolder, lines_of, read_lines, replace_file
from evaluator.batch.runs.tasks import Planned, Refused

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


class Refusals(LinesFile):
    """Refused inputs of a run, open for writing."""

    def __init__(self, folder: RunFolder, is_read: Callable[[Refused], bool]) -> None:
        """Read the refused inputs.

        `is_read` tells whether a session with all inputs read comes across an earlier refused input, if still present.

        Raises:
            CardError: the file cannot be read.
            InfraError: the file cannot be written.
        """
        self._is_read = is_read
        self._earlier = {_key(refused): refused for refused in read_refusals(folder)}
        self._now: dict[_Key, Refused] = {}
        self._accepted: set[tuple[str, str]] = set()
        super().__init__(folder.refused)

    def accept(self, planned: Planned) -> None:
        """Count a submission as accepted: an earlier refusal of the same name does not hold any more."""
        if self._earlier:
            self._accepted.add((planned.problem, planned.name))

    def add(self, refused: Refused) -> None:
        """Append a refused input unless the file has the same line. Raises InfraError if the disk is full."""
        key = _key(refused)
        if refused not in (self._now.get(key), self._earlier.get(key)):
            self.append(refused)
        self._now[key] = refused

    def complete(self) -> None:
        """Remove outdated refusals: all inputs of the session were read."""
        current = {
            key: refused
            for key, refused in self._earlier.items()
            if not self._is_read(refused) and (refused.problem, refused.name) not in self._accepted
        } | self._now
        if current != self._earlier | self._now:
            replace_file(self.path, lines_of(current.values()))


def _key(refused: Refused) -> _Key:
    return refused.origin, refused.sha256
