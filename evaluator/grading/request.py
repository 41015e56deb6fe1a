"""Request of a grade: problem, submission, terms, resources and planned stages."""

import contextlib
import gc
import os
import sys
from collections.abc import Iterator

from evaluator.judge.setup.grade_terms import GradeTerms
from evaluator.progress import Lap
from evaluator.records import DeviceKind, Finding, Outcome, Record, Scorecard, Sha256
from evaluator.submission.read import Submission

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 256 << 20
_MAPPED_FROM_BYTES = 32 << 20
"""The largest value that the C library allows."""


def threads() -> int:
    """Return the number of cores available to this process."""
    return len(os.sched_getaffinity(0))


@contextlib.contextmanager
def nothing_collected() -> Iterator[None]:
    """Disable the garbage collector during the import of torch: repeated scans of permanent objects cost time."""
    if "torch" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def keep_freed_memory() -> None:
    """Let this process, a judge, keep up to 256 MiB of freed memory for its next tensors.

    By default, the C library returns the memory of each temporary tensor to the system. The next one then waits for
    fresh pages: a fifth of the CPU time of comparisons. Processes of submissions are never set so, because both sides
    of a timing must run as they would elsewhere.
    """
    import ctypes

    with contextlib.suppress(AttributeError):  # a C library without mallopt
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


class Unread(Record, frozen=True):
    """A submission that could not be read: origin and reason. The scorecard reports the reason."""

    name: str
    origin: str
    finding: Finding


class GradeRequest(Record, frozen=True):
    """Submission, problem and options of a grade. A replay uses the seeds of the card `replay`."""

    submission: Submission | Unread
    terms: GradeTerms
    replay: Scorecard | None = None


class Library(Record, frozen=True):
    """A built library under its cache key, for a machine without access to the cache."""

    key: Sha256
    content: bytes
    log: str
    wall_s: float


class Begun(Record, frozen=True):
    """A grade with a built submission, to be finished on a GPU. `libraries` are included for another machine.

    `submission_s` is the part of the time that was spent in builds and code of the submission.
    """

    outcome: Outcome
    lap: Lap
    libraries: list[Library] = []
    submission_s: float = 0.0


def stages_of(terms: GradeTerms) -> tuple[str, ...]:
    """Return the names of all stages of a correct submission's grade.

    >>> from types import SimpleNamespace as Some
    >>> options = Some(profile=None, require_own_kernel=None)
    >>> stages_of(Some(gpu=None, is_timed=True, device=DeviceKind.CPU, options=options))
    ('read', 'prepare', 'lint', 'build', 'check', 'time')
    """
    on_gpu, options = terms.gpu is not None, terms.options
    profiled = options.profile is not None or (on_gpu and options.require_own_kernel is not None)
    stages = ["read", "prepare", "lint", "build", *(["device"] if on_gpu else [])]
    stages += ["reference"] if terms.is_timed and on_gpu else []
    stages += ["check", *(["time"] if terms.is_timed else [])]
    stages += ["roofline"] if terms.is_timed and on_gpu else []
    stages += ["profile"] if profiled and terms.device is not DeviceKind.EMULATED else []
    return tuple(stages)
