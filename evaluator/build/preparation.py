"""Make what split builds share beside a grade, so that the first one on a machine does not wait for it."""

import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from evaluator.build.builder import RunTool
from evaluator.build.prepared import prepare
from evaluator.deadline import DeadlineReached
from evaluator.errors import WarpgradeError
from evaluator.isolation import ToolResult

_LAST_IN_LINE = ("-n", "19")
_AGAIN_S = 0.05


class Preparation:
    """`prepare` in a thread of its own, behind everything else that wants a processor. Its failure fails nothing."""

    def __init__(self, run_tool: RunTool, cache: Path) -> None:
        """Begin. `run_tool` is used from the thread."""
        self._run_tool = run_tool
        self._cache = cache
        self._ending = False
        # Not the thread itself is waited for: after a Ctrl-C in its `join` Python says that it has ended.
        self._done = threading.Event()
        # A daemon, because who never comes to `end` must not wait either; its compiler dies with this process.
        threading.Thread(target=self._prepare, name="prepare", daemon=True).start()

    def wait(self) -> None:
        """Wait until it is done; Ctrl-C gets through."""
        self._done.wait()

    def end(self, kill: Callable[[], None]) -> None:
        """End it at once. `kill` ends every program of `run_tool`; again, if one was just about to start."""
        self._ending = True
        while not self._done.is_set():
            kill()
            self._done.wait(_AGAIN_S)

    def _prepare(self) -> None:
        try:
            prepare(self._run_behind, self._cache)
        except (WarpgradeError, OSError, DeadlineReached):
            return  # No compiler, no room, or no time: builds take the next step.
        except Exception:
            if not self._ending:  # A process that is killed from another thread ends in many ways.
                raise
        finally:
            self._done.set()

    def _run_behind(self, argv: Sequence[str], **how: Any) -> ToolResult:
        nice = shutil.which("nice")
        return self._run_tool([*([nice, *_LAST_IN_LINE] if nice else []), *argv], **how)
