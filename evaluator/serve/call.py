"""A grade for a client; the client may abandon the grade at any time."""

import contextlib
import threading
from collections.abc import Iterator

from evaluator.batch.workers.worker_handle import WorkerHandle


class ClientCall:
    """A grade in progress. `abandon` may be called from another thread than the grade's."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._worker: WorkerHandle | None = None
        self._abandoned = False
        self._finished = False

    @property
    def is_abandoned(self) -> bool:
        """Whether the client has abandoned the grade before its end."""
        return self._abandoned

    def abandon(self) -> None:
        """End the grade and its worker. Without effect on a finished grade."""
        with self._changing:
            self._abandoned = not self._finished
            if self._worker is not None:
                self._worker.interrupt()

    def finish(self) -> None:
        """Count the grade as finished, unless abandoned: the client may leave as soon as the result arrives."""
        with self._changing:
            self._finished = not self._abandoned

    @contextlib.contextmanager
    def made_by(self, worker: WorkerHandle) -> Iterator[None]:
        """Let `abandon` end `worker` inside the context."""
        with self._changing:
            self._worker = worker
            if self._abandoned:
                worker.interrupt()
        try:
            yield
        finally:
            with self._changing:
                self._worker = None
