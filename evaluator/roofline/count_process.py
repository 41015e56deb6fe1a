"""Separate process for counting a problem's work: a `Problem` and a `WorkBySize` as JSON."""

import socket
from pathlib import Path

import msgspec

from evaluator.problem_process import serve
from evaluator.records import Problem, SizeName
from evaluator.roofline.counted_work import CallWork, WorkBySize
from evaluator.roofline.work_count import Uncountable, count


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


def run(sock: socket.socket, _: Path) -> None:
    """Serve one request over `sock`, in a confined process."""
    serve(sock, lambda problem: msgspec.json.encode(counted(msgspec.json.decode(problem, type=Problem))))
