"""Background build of split builds' shared files, so the first split build on a machine does not wait."""

import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from evaluator.compile.cuda.precompiled import precompile
from evaluator.compile.extension.builder import RunTool
from evaluator.deadline import DeadlineReached
from evaluator.errors import WarpgradeError
from evaluator.sandbox import ToolResult

_LAST_IN_LINE = ("-n", "19")
_AGAIN_S = 0.05


class BackgroundPrecompile:
    """Run of `prepare` in a low-priority thread. Failures have no effect on the grade."""

    def __init__(self, run_tool: RunTool, cache: Path) -> None:
        """Start the thread. The thread calls `run_tool`."""
        self._run_tool = run_tool
        self._cache = cache
        self._ending = False
        # An event instead of `join`: after Ctrl-C in `join`, Python reports the thread as ended.
        self._done = threading.Event()
        # Daemon thread: a process that never calls `end` must not wait. The compiler dies with the process.
        threading.Thread(target=self._prepare, name="prepare", daemon=True).start()

    def wait(self) -> None:
        """Wait for completion. Ctrl-C interrupts the wait."""
        # In rounds: Python handles a signal that comes just before a wait only after the wait.
        while not self._done.wait(_AGAIN_S):
            pass

    def end(self, kill: Callable[[], None]) -> None:
        """Stop the thread at once. `kill` ends all programs of `run_tool`; repeated, as a program may be starting."""
        self._ending = True
        while not self._done.is_set():
            kill()
            self._done.wait(_AGAIN_S)

    def _prepare(self) -> None:
        try:
            precompile(self._run_behind, self._cache)
        except (WarpgradeError, OSError, DeadlineReached):
            return  # No compiler, space or time: builds use the next step.
        except Exception:
            if not self._ending:  # Killing tools from another thread causes arbitrary exceptions.
                raise
        finally:
            self._done.set()

    def _run_behind(self, argv: Sequence[str], **how: Any) -> ToolResult:
        nice = shutil.which("nice")
        return self._run_tool([*([nice, *_LAST_IN_LINE] if nice else []), *argv], **how)
