"""Page of a run during the batch."""

import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from evaluator.batch.runs.index import card_files
from evaluator.batch.runs.page_files import run_page_of
from evaluator.batch.runs.results import read_runs
from evaluator.batch.runs.run_folder import RunFolder
from evaluator.signatures.signing import Trust

_LEAST_S = 1.0
_REST = 4.0
"""Pause after the making of a page, in multiples of the duration: pages take at most a fifth of a core."""


class LiveRun:
    """Current page of a run, or of the shards of a batch. Threads may share an object."""

    def __init__(
        self,
        runs: Sequence[Path],
        clock: Callable[[], float] = time.monotonic,
        *,
        problems: Path | None = None,
        trust: Trust | None = None,
    ) -> None:
        """Store the arguments; `problems` has the references, and `trust` the keys of accepted signatures."""
        self._runs = runs
        self._problems = problems
        self._trust = trust
        self._clock = clock
        self._lock = threading.Lock()
        self._version = ""
        self._content = b""
        self._rests_until_s = clock()

    def version(self) -> str:
        """Return the version of the next result of `page`."""
        with self._lock:
            return self._newest()

    def page(self) -> bytes:
        """Return the page, made anew if the run has changed.

        Raises:
            CardError: a run cannot be read.
            UsageError: the runs are not shards of a single batch.
        """
        with self._lock:
            newest = self._newest()
            if newest != self._version:
                began_s = self._clock()
                results = read_runs(self._runs, self._trust)
                self._content = b"".join(run_page_of(results, newest, self._problems))
                self._version = newest
                ended_s = self._clock()
                self._rests_until_s = ended_s + max(_LEAST_S, _REST * (ended_s - began_s))
            return self._content

    def _newest(self) -> str:
        return self._version if self._clock() < self._rests_until_s else _fingerprint(self._runs)


def _fingerprint(runs: Sequence[Path]) -> str:
    """Return a hash of sizes and modification times of plans, refused inputs and cards."""
    digest = hashlib.sha256()
    for run in runs:
        folder = RunFolder(run)
        for path in (folder.plan, folder.refused):
            try:
                status = path.lstat()
                digest.update(f"{status.st_size} {status.st_mtime_ns}\n".encode())
            except OSError:
                digest.update(b"no file\n")
        for card, stamp in sorted(card_files(folder.cards), key=lambda item: item[0]):
            digest.update(f"{card} {stamp}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:16]
