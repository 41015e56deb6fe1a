"""Budget shared by all builds of one grade, across all runners of the submission."""

import contextlib
import time
from collections.abc import Callable, Iterator

from evaluator.findings import Code, finding
from evaluator.records import Finding

MOST_REQUESTS = 512
"""A submission may have 64 extensions, requested again by each runner: to load, check, time and profile."""
MOST_TEXT_BYTES = 64 << 20
"""A submission is limited to 1 MiB, sent by at most eight runners."""


class BuildBudget:
    """Counts build requests, the size of their sources, and the time to serve them, compilation included.

    `waited_s` is the submission's waiting time, less than the build time if builds were started speculatively.
    """

    def __init__(self, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with nothing used. `limit_s` limits the sum over all requests."""
        self._limit_s = limit_s
        self._clock = clock
        self._requests = 0
        self._text_bytes = 0
        self.waited_s = 0.0

    def admit(self, text_bytes: int) -> Finding | None:
        """Count a request. Return None to admit the request, else the reason for refusing."""
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
        """Add the duration of a block to `waited_s`."""
        started = self._clock()
        try:
            yield
        finally:
            self.waited_s += self._clock() - started
