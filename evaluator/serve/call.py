"""One grade for a client, which the client may abandon at any time."""

import contextlib
import threading
from collections.abc import Iterator

from evaluator.batch.workers.worker_handle import WorkerHandle


class Call:
    """A grade in progress. `abandon` may be called from another thread than the grade's."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._worker: WorkerHandle | None = None
        self._abandoned = False

    @property
    def is_abandoned(self) -> bool:
        """Whether nobody waits for the grade any more."""
        return self._abandoned

    def abandon(self) -> None:
        """End the grade, with the worker that makes it."""
        with self._changing:
            self._abandoned = True
            if self._worker is not None:
                self._worker.interrupt()

    @contextlib.contextmanager
    def made_by(self, worker: WorkerHandle) -> Iterator[None]:
        """Let `abandon` end this worker inside the context."""
        with self._changing:
            self._worker = worker
            if self._abandoned:
                worker.interrupt()
        try:
            yield
        finally:
            with self._changing:
                self._worker = None
