"""Background disassembly of a submission's libraries, beside the rest of the grade."""

import hashlib
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

from evaluator.compile.disassembly import together
from evaluator.deadline import DeadlineReached
from evaluator.errors import WarpgradeError
from evaluator.records import MachineCode

_MOST_S = 60.0
"""Time limit for all libraries of a submission. A usual extension takes less than a second."""
_MOST_BYTES = 256 << 20
"""Limit for the waiting libraries: as much as one submission may add to the build cache."""
_KILL_ROUND_S = 0.05


class Disassemble(Protocol):
    """Disassembler of a library."""

    def __call__(self, library: bytes, *, timeout_s: float) -> MachineCode:
        """Return the machine code of `library`, or the reason why the code is unknown."""


class MachineCodeReader:
    """Reads the libraries of one submission at a time, in one thread."""

    def __init__(self, disassemble: Disassemble) -> None:
        """Start with no library."""
        self._disassemble = disassemble
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="machine-code")
        self._unfinished: list[Future[MachineCode]] = []
        self._of_submission = _Libraries()

    def turn_to_next(self) -> None:
        """Switch to another submission."""
        for task in self._unfinished:
            task.cancel()
        self._of_submission = _Libraries()

    def begin(self, library: bytes) -> None:
        """Start to read a built library, unless the same library was read for this submission."""
        libraries, digest = self._of_submission, hashlib.sha256(library).hexdigest()
        if digest in libraries.read or libraries.too_many:
            return
        libraries.total_bytes += len(library)
        if not libraries.too_many:
            libraries.read[digest] = self._thread.submit(self._read, library, libraries)
            self._unfinished = [task for task in (*self._unfinished, libraries.read[digest]) if not task.done()]

    def result(self) -> MachineCode:
        """Wait for all libraries, and return the machine code."""
        parts = [task.result() for task in self._of_submission.read.values()]
        if self._of_submission.too_many:
            parts.append(MachineCode(not_looked_at=f"the libraries exceed {_MOST_BYTES >> 20} MiB together"))
        return together(parts)

    def close(self, kill: Callable[[], None]) -> None:
        """End the thread. `kill` ends all running tools; repeated, as a tool may be starting."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        while not all(task.done() for task in self._unfinished):
            kill()
            time.sleep(_KILL_ROUND_S)

    def _read(self, library: bytes, libraries: "_Libraries") -> MachineCode:
        """Read a library. No failure of the disassembly ends a grade."""
        if libraries.left_s <= 0:
            return MachineCode(not_looked_at=f"the disassembly of all libraries took more than {_MOST_S:.0f} s")
        started = time.monotonic()
        try:
            return self._disassemble(library, timeout_s=libraries.left_s)
        except (WarpgradeError, OSError) as error:
            return MachineCode(not_looked_at=f"cuobjdump did not run: {error}"[:300])
        except DeadlineReached:
            return MachineCode(not_looked_at="the grade reached its deadline")
        finally:
            libraries.left_s -= time.monotonic() - started


@dataclass
class _Libraries:
    """Libraries of a submission by digest, and the rest of the limits."""

    read: dict[str, Future[MachineCode]] = field(default_factory=dict)
    total_bytes: int = 0
    left_s: float = _MOST_S

    @property
    def too_many(self) -> bool:
        return self.total_bytes > _MOST_BYTES
