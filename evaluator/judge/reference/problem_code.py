"""Execution of the problem's code: prints go to stderr, exceptions become errors of the problem."""

import contextlib
import sys
import traceback
from collections.abc import Iterator

from evaluator.devices.out_of_memory import ran_out
from evaluator.errors import ProblemError


@contextlib.contextmanager
def author_code(path: str, doing: str) -> Iterator[None]:
    """Context for the problem's code in the file `path`: an exception becomes a ProblemError with the line number.

    Exhausted memory becomes a MemoryError.
    """
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except (ProblemError, KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:  # noqa: BLE001 - SystemExit too: every exception is the problem's
        if ran_out(error):
            raise MemoryError(str(error)) from None
        lines = [e.lineno for e in traceback.extract_tb(error.__traceback__) if e.filename == path]
        where = f", line {lines[-1]}" if lines else ""
        raise ProblemError(
            f"{path}{where}: {doing} failed: {type(error).__name__}: {error}",
            hint="the fault is in the problem, not in the submission: fix its reference.py",
        ) from None
