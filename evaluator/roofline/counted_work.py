"""Bytes and FLOP of a problem's call for each size, from a separate process with PyTorch, counted once and cached.

The process runs the reference's own code on the meta device (`work_count.py`). The caller needs no PyTorch.
"""

import msgspec

from evaluator.cache.measurements import measured_once
from evaluator.problem_process import NoAnswer, answer_of
from evaluator.records import Problem, Record, SizeName
from evaluator.toolchain.host_compiler import torch_version

_LIMIT_S = 300.0
"""A usual count takes the time of importing PyTorch plus a second."""
_PROCESS = "evaluator.roofline.work_count"
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
    parts = ["work", _VERSION, problem.sha256, problem.sizes, torch_version()]
    try:
        return measured_once(parts, WorkBySize, lambda: _counted(problem))
    except NoAnswer as error:
        return WorkBySize(known={}, unknown=dict.fromkeys(problem.sizes, f"the count failed: {error}"))


def _counted(problem: Problem) -> WorkBySize:
    answer = answer_of(_PROCESS, msgspec.json.encode(problem), _LIMIT_S)
    try:
        return msgspec.json.decode(answer, type=WorkBySize)
    except msgspec.DecodeError as error:
        raise NoAnswer("the process gave no count") from error
