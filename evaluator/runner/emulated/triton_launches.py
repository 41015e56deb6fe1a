"""Launch counter for Triton kernels, which run in Triton's interpreter without a GPU."""

import sys
from typing import Any


class TritonLaunches:
    """Counts launches once a submission has imported Triton; never imports Triton."""

    def __init__(self) -> None:
        """Start at zero."""
        self.count = 0
        self.left_out = False
        self._counted: type | None = None

    def watch(self) -> None:
        """Count from now on if Triton is imported. Triton versions without `GridExecutor` are not counted."""
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
