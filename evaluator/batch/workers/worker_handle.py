"""A worker as a crew holds it: a process of this machine here, or whatever else stands in its place."""

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

from evaluator.batch.workers.messages import GpuModel, NotGraded, Order, Part, Result, Stage, receive_reply, send
from evaluator.files.safe_open import open_to_append
from evaluator.sandbox.filesystem.visible_files import source_root

_BEHIND_S = 60.0
"""How long after its deadline a grade's process may still be silent: it must first have imported PyTorch."""
_END_S = 10.0
# -P: nothing is imported from the current folder, which may well be that of the submissions.
_PYTHON = (sys.executable, "-P", "-X", "utf8")
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from evaluator.batch.workers import worker; sys.exit(worker.main(sys.argv[2:]))"
)


class Slot(NamedTuple):
    """What a worker has for itself, these cores (all where empty) and this GPU, and which part of grades it makes.

    A GPU is used only by the slot that finishes grades on it; those that begin them need to know which one it will be,
    or, where it is another machine's, what it is like (`facts`).
    """

    cores: tuple[int, ...] = ()
    gpu: str | None = None
    part: Part = Part.ALL
    facts: GpuModel | None = None


class NoWorker(Exception):
    """There is no machine any more for a slot: nothing can be made there, and what it was at is for another."""


class WorkerHandle(Protocol):
    """Has one grade after another made, for a slot."""

    def grade(self, order: Order, on_stage: Callable[[Stage], None]) -> Result:
        """Have one grade made, or a part of it."""

    def interrupt(self) -> None:
        """Make it end its grade and itself. May be called while another thread waits in `grade`."""

    def wait(self) -> None:
        """Wait for its end after `interrupt`; it has only so long."""

    def close(self) -> None:
        """End it, with all that it started. Not while another thread waits in `grade`."""


Hire = Callable[[Slot, Path | None], WorkerHandle]
"""Makes the worker of a slot; what it prints goes to that file. May raise NoWorker."""


class LocalWorker:
    """One process of `evaluator.batch.workers.worker` and the pipes to it."""

    def __init__(self, slot: Slot, log: Path | None) -> None:
        """Start it. What it prints goes to the end of `log`, else to stderr."""
        replies, its_replies = os.pipe()
        arguments = [str(its_replies)]
        if slot.cores:
            arguments.append(",".join(map(str, slot.cores)))
        try:
            with contextlib.ExitStack() as opened:
                output = 2 if log is None else opened.enter_context(open_to_append(log.parent, log.name)).fileno()
                self._process = subprocess.Popen(
                    [*_PYTHON, "-c", _BOOT, str(source_root()), *arguments],
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=output,
                    pass_fds=(its_replies,),
                    start_new_session=True,  # Ctrl-C is for the batch, which then ends its workers in order.
                )
        except BaseException:
            os.close(replies)
            raise
        finally:
            os.close(its_replies)
        assert self._process.stdin is not None  # noqa: S101 - for the type checker: PIPE was asked for
        self._orders = self._process.stdin
        self._replies = replies

    def grade(self, order: Order, on_stage: Callable[[Stage], None]) -> Result:
        """Have one grade made, or a part of it."""
        limit_s = order.options.limit_s + _BEHIND_S
        until_s = time.monotonic() + limit_s
        try:
            send(self._orders.fileno(), order)
            while True:
                readable, _, _ = select.select([self._replies], [], [], max(0.0, until_s - time.monotonic()))
                if not readable:
                    self._process.kill()  # and the kernel kills its grade: it would be as long again
                    return NotGraded(reason=f"the grade was not over after {limit_s:.0f} s", again=False)
                reply = receive_reply(self._replies)
                if not isinstance(reply, Stage):
                    return reply
                on_stage(reply)
        except (EOFError, OSError, ValueError):  # ValueError: what came was no message
            return NotGraded(reason="the process that made the grade died", again=True)

    def interrupt(self) -> None:
        """Make it end its grade and itself. May be called while another thread waits in `grade`."""
        self._process.terminate()

    def wait(self) -> None:
        """Wait for its end after `interrupt`; it has only so long."""
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # and the kernel kills its grade
            self._process.wait()

    def close(self) -> None:
        """End it, with all that it started. Not while another thread waits in `grade`."""
        self.interrupt()
        self.wait()
        with contextlib.suppress(OSError):
            self._orders.close()
        os.close(self._replies)
