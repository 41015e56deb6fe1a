"""Bytes and FLOP of a problem's call for each size, from a separate process with PyTorch, counted once and cached.

The process runs the reference's own code on the meta device (`count_process.py`). The caller needs no PyTorch.
"""

import importlib.metadata
import sys
from pathlib import Path

import msgspec

from evaluator.cache.measurements import measured_once
from evaluator.records import Problem, Record, SizeName

_LIMIT_S = 300.0
"""A usual count takes the time of importing PyTorch plus a second."""
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); from evaluator.roofline import count_process; count_process.main()"
)
_TOP = Path(__file__).resolve().parents[2]
_VERSION = 1


class CallWork(Record, frozen=True):
    """Bytes and FLOP of one call, as in `work_count.Work`."""

    read_bytes: int
    written_bytes: int
    flop: int


class WorkBySize(Record, frozen=True):
    """Work of a call for each size. A size in `unknown` has a reason instead."""

    known: dict[SizeName, CallWork]
    unknown: dict[SizeName, str]


def work_of(problem: Problem) -> WorkBySize:
    """Return the work of a call for each size of `problem`. A failed process is a reason, and is not cached."""
    parts = ["work", _VERSION, problem.sha256, problem.sizes, importlib.metadata.version("torch")]
    try:
        return measured_once(parts, WorkBySize, lambda: _counted(problem))
    except _NoProcess as error:
        return WorkBySize(known={}, unknown=dict.fromkeys(problem.sizes, str(error)))


class _NoProcess(Exception):
    """The count was ended by the time limit or by the machine."""


def _counted(problem: Problem) -> WorkBySize:
    import subprocess

    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _BOOT, str(_TOP)],
            input=msgspec.json.encode(problem),
            capture_output=True,
            timeout=_LIMIT_S,
            check=True,
        )
        return msgspec.json.decode(done.stdout, type=WorkBySize)
    except subprocess.TimeoutExpired as error:
        raise _NoProcess(f"the count took longer than {_LIMIT_S:.0f} s") from error
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError) as error:
        raise _NoProcess("the process that counts has failed") from error
