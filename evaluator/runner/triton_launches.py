"""Launches of Triton kernels, which Triton's own interpreter runs where there is no GPU."""

import sys
from typing import Any


class TritonLaunches:
    """Counts them. Triton is looked at once a submission has imported it; nothing here imports it."""

    def __init__(self) -> None:
        """Start at none."""
        self.count = 0
        self.left_out = False
        self._counted: type | None = None

    def watch(self) -> None:
        """Count from now on, if Triton was imported by now. A Triton without this class is not counted."""
        executor = getattr(sys.modules.get("triton.runtime.interpreter"), "GridExecutor", None)
        if executor is None or executor is self._counted:
            return
        self._counted = executor
        launch = executor.__call__

        def counted(grid: Any, *args: Any, **kwargs: Any) -> Any:
            self.count += 1
            if self.left_out:
                return None
            return launch(grid, *args, **kwargs)

        executor.__call__ = counted
