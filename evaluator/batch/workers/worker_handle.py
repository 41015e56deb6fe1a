"""Handle of a worker for the worker pool: an interface, and the implementation for a local process."""

import contextlib
import os
import select
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

from evaluator.batch.workers.messages import (
    GpuModel,
    GradePart,
    NotGraded,
    PrepareWorker,
    Result,
    StageEntered,
    WorkerOrder,
    receive_prepared,
    receive_reply,
    send,
)
from evaluator.files.safe_open import open_to_append

_BEHIND_S = 180.0
"""Grace period after the deadline of a grade: the worker may first have to import PyTorch, on a busy machine."""
_END_S = 10.0
_UNLOCK_S = 1.0
_LOOK_S = 0.005
# -P: never import from the current folder, which may hold submissions.
_PYTHON = (sys.executable, "-P", "-X", "utf8")
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from evaluator.batch.workers import worker; sys.exit(worker.main(sys.argv[2:]))"
)


class Slot(NamedTuple):
    """Resources of a worker (cores, all if empty; a GPU) and the part of grades that the worker makes.

    Only the finishing slot of a GPU uses the GPU. Building slots need to know the GPU, or `facts` for a GPU of another
    machine. `builds_at_once` is the number of slots of the machine that build.
    """

    cores: tuple[int, ...] = ()
    gpu: str | None = None
    part: GradePart = GradePart.ALL
    facts: GpuModel | None = None
    builds_at_once: int = 1


class NoWorker(Exception):
    """A slot has lost its machine: another slot must take over its task."""


class WorkerHandle(Protocol):
    """Worker of a slot: makes grades in sequence."""

    def prepare(self, request: PrepareWorker) -> bool:
        """Get ready for the first order. Return false if the worker must be replaced."""

    def grade(self, order: WorkerOrder, on_stage: Callable[[StageEntered], None]) -> Result:
        """Make a grade, or a part of a grade."""

    def interrupt(self) -> None:
        """End the worker and any current grade. May be called while another thread waits in `grade`."""

    def wait(self) -> None:
        """Wait for the worker's end after `interrupt`, for a limited time."""

    def close(self) -> None:
        """End the worker and all its processes. Must not be called while another thread waits in `grade`."""


Hire = Callable[[Slot, Path | None], WorkerHandle]
"""Factory of a slot's worker, with the file for the worker's output. May raise NoWorker."""


class LocalWorker:
    """A process of `evaluator.batch.workers.worker` and its pipes."""

    def __init__(self, slot: Slot, log: Path | None) -> None:
        """Start the process. Its output is appended to `log`, or goes to stderr."""
        import subprocess  # clients of the ready judge need neither

        from evaluator.sandbox.visible_files import source_root

        replies, its_replies = os.pipe()
        arguments = [str(its_replies), str(slot.builds_at_once)]
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
                    start_new_session=True,  # Ctrl-C reaches only the batch, which ends its workers in order.
                )
        except BaseException:
            os.close(replies)
            raise
        finally:
            os.close(its_replies)
        assert self._process.stdin is not None  # noqa: S101 - for the type checker: PIPE was asked for
        self._orders = self._process.stdin
        self._replies = replies
        self._closing = threading.Lock()
        self._closed = False

    @property
    def pid(self) -> int:
        """Process id of the worker."""
        return self._process.pid

    def prepare(self, request: PrepareWorker) -> bool:
        """Wait until the worker can grade at once. Return false if the worker died, or takes too long."""
        try:
            send(self._orders.fileno(), request)
            receive_prepared(self._replies, _BEHIND_S)
        except (EOFError, OSError, ValueError):  # a timeout is an OSError, an invalid message a ValueError
            return False
        return True

    def grade(self, order: WorkerOrder, on_stage: Callable[[StageEntered], None]) -> Result:
        """Make a grade, or a part of a grade."""
        limit_s = order.options.limit_s + _BEHIND_S
        until_s = time.monotonic() + limit_s
        try:
            send(self._orders.fileno(), order)
            while isinstance(reply := receive_reply(self._replies, until_s - time.monotonic()), StageEntered):
                on_stage(reply)
        except TimeoutError:
            self._process.kill()  # the kernel then kills the grade
            return NotGraded(reason=f"the grade was not over after {limit_s:.0f} s", again=False)
        except (EOFError, OSError, ValueError):  # ValueError: an invalid message
            return NotGraded(reason="the process that made the grade died", again=True)
        return reply

    def interrupt(self) -> None:
        """End the worker and any current grade. May be called while another thread waits in `grade`."""
        self._process.terminate()

    def wait(self) -> None:
        """Wait a limited time for the worker's end after `interrupt`. Remove temporary folders of a killed judge."""
        import subprocess

        from evaluator.sandbox.scratch_folders import remove_abandoned

        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # the kernel then kills the grade
            self._process.wait()
        self._await_judge()
        # A judge killed after the grace period removes no folder. Neither does a judge interrupted right after the
        # creation of a folder.
        remove_abandoned()

    def close(self) -> None:
        """End the worker and all its processes. Must not be called while another thread waits in `grade`."""
        self.interrupt()
        self.wait()
        with contextlib.suppress(OSError):
            self._orders.close()
        with self._closing:
            self._closed = True
            os.close(self._replies)

    def _await_judge(self) -> None:
        """Wait a limited time for the death of a killed worker's judge, and for the unlocked folders."""
        with self._closing:  # Another thread may close the handle meanwhile.
            if not self._closed:
                poll = select.poll()
                poll.register(self._replies, 0)  # the hang-up: worker and judge hold the other end
                poll.poll(_END_S * 1000)
        # The kernel may close the pipe before the locks. A worker and its judge are a process group.
        until_s = time.monotonic() + _UNLOCK_S
        with contextlib.suppress(OSError):
            while time.monotonic() < until_s:
                os.killpg(self._process.pid, 0)
                time.sleep(_LOOK_S)
