"""Bytes and FLOP of a problem's call for each size, from a separate process with PyTorch, counted once and cached.

The process runs the reference's own code on the meta device (`work_count.py`). The caller needs no PyTorch.
"""

from evaluator.cache.measurements import measured_once
from evaluator.records import CaseName, Problem, Record
from evaluator.sandbox.question import PROBLEM_ANSWER_BYTES, PROBLEM_LIMITS, NoAnswer, Question
from evaluator.toolchain.host_compiler import torch_version

_VERSION = 1


class CallWork(Record, frozen=True):
    """Bytes and operations of a call, with each byte moved once.

    `read_bytes` covers the storages of inputs, parameters and buffers (and of output gradients, where gradients are
    graded) with values used by any operation. Each byte counts once, however many tensors share the byte.
    `written_bytes` covers outputs and gradients in new storages. `flop` counts matrix products, convolutions and
    attention, forward and backward: a multiplication plus an addition are two. Other arithmetic is not counted.

    Neither number is a lower bound for every program. A reference that gathers or slices an input does not read the
    whole input. A reference that multiplies by a diagonal matrix computes more than necessary. A verdict based on these
    numbers requires proof that every byte matters.
    """

    read_bytes: int
    written_bytes: int
    flop: int


class WorkBySize(Record, frozen=True):
    """Work of a call for each size. A size in `unknown` has a reason instead."""

    known: dict[CaseName, CallWork]
    unknown: dict[CaseName, str]


COUNT = Question("evaluator.roofline.work_count:run", Problem, WorkBySize, 300.0, PROBLEM_LIMITS, PROBLEM_ANSWER_BYTES)
"""A usual count takes the time of importing PyTorch plus a second."""


def work_of(problem: Problem) -> WorkBySize:
    """Return the work of a call for each size of `problem`. A failed process is a reason, and is not cached."""
    axes = {name: case.axes for name, case in problem.cases.items()}
    parts = ["work", _VERSION, problem.sha256, axes, torch_version()]
    work = measured_once(parts, WorkBySize, lambda: COUNT.ask_in_new_sandbox(problem))
    if isinstance(work, NoAnswer):
        return WorkBySize(known={}, unknown=dict.fromkeys(problem.cases, f"the count failed: {work.reason}"))
    return work
