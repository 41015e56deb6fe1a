"""A separate process that counts a problem's work: a `Problem` as JSON on stdin, a `WorkBySize` on stdout."""

import os
import resource
import sys
import warnings

import msgspec
import torch

from evaluator.records import Problem, SizeName
from evaluator.roofline.counted_work import CallWork, WorkBySize
from evaluator.roofline.work_count import Uncountable, count

_DATA_BYTES = 6 << 30


def counted(problem: Problem) -> WorkBySize:
    """Return the work of a call for each size."""
    known: dict[SizeName, CallWork] = {}
    unknown: dict[SizeName, str] = {}
    for size in problem.sizes:
        match count(problem, size):
            case Uncountable(reason=reason):
                unknown[size] = reason
            case found:
                known[size] = CallWork(found.read_bytes, found.written_bytes, found.flop)
    return WorkBySize(known, unknown)


def main() -> None:
    """Serve one request and exit."""
    resource.setrlimit(resource.RLIMIT_DATA, (_DATA_BYTES, _DATA_BYTES))
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # Output of the reference must not reach the answer.
    answers.write(msgspec.json.encode(counted(msgspec.json.decode(sys.stdin.buffer.read(), type=Problem))))
    answers.flush()
    os._exit(0)
