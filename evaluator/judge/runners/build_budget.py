"""What the builds of one grade may cost the judge together, whichever of its runners asks for them."""

import contextlib
import time
from collections.abc import Callable, Iterator

from evaluator.findings import Code, finding
from evaluator.records import Finding

MOST_REQUESTS = 512
"""A submission may have 64 extensions, and each of its runners (to read it in, to check, to time, to profile) asks."""
MOST_TEXT_BYTES = 64 << 20
"""A submission has 1 MiB, and eight runners at most send it."""


class BuildBudget:
    """Counts requests, their texts, and the time that they took: compiling, and all else that the judge did for them.

    `waited_s` is how long the submission waited: less than its builds took, where they were begun ahead.
    """

    def __init__(self, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with nothing; all requests together may take `limit_s`."""
        self._limit_s = limit_s
        self._clock = clock
        self._requests = 0
        self._text_bytes = 0
        self.waited_s = 0.0

    def admit(self, text_bytes: int) -> Finding | None:
        """Count a request; say why it gets nothing, None where it is to be served."""
        self._requests += 1
        self._text_bytes += text_bytes
        if self._requests > MOST_REQUESTS:
            return finding(
                Code.TOO_MANY_BUILDS, f"the submission asked for more than {MOST_REQUESTS} builds in one grade"
            )
        if self._text_bytes > MOST_TEXT_BYTES:
            message = f"the submission sent more than {MOST_TEXT_BYTES >> 20} MiB of sources in one grade"
            return finding(Code.TOO_MANY_BUILDS, message)
        if self.waited_s >= self._limit_s:
            message = f"the builds of this grade took {self.waited_s:.0f} s; the judge refuses further builds"
            return finding(Code.COMPILER_TIMED_OUT, message)
        return None

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Count the time of a block."""
        started = self._clock()
        try:
            yield
        finally:
            self.waited_s += self._clock() - started
