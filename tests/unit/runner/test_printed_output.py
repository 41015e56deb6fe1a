"""The buffers of a runner's output: line by line at first, then in blocks; nothing in the middle of a line."""

import os
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).parents[3]
PROGRAM = """
import ctypes, os, sys
from evaluator.runner.printed_output import Printing
printing, c = Printing(), ctypes.CDLL(None)
def call(number):
    c.printf(b"C: call %d\\n", number)
    print(f"Python: call {number}")
    os.write(1, b"end of call %d\\n" % number)
"""
FIRST = ["C: call 1", "Python: call 1", "end of call 1"]


def written(*then):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    program = PROGRAM + "\n".join([*then, "os._exit(0)"])
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=TOP, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.splitlines()


def test_line_by_line_nothing_waits_for_a_flush():
    assert written("call(1)") == FIRST


def test_in_blocks_everything_waits_for_a_flush():
    blocks = "printing.flush(); printing.in_blocks()"
    calls = [line for n in (2, 3) for line in (f"end of call {n}", f"Python: call {n}", f"C: call {n}")]
    said = written("call(1)", blocks, "for n in (2, 3): call(n); printing.flush()", "call(4)")
    assert said == [*FIRST, *calls, "end of call 4"]


def test_streams_that_a_submission_closed_or_replaced_are_no_error():
    after = "printing.in_blocks(); printing.flush(); c.puts(b'C'); printing.flush()"
    assert written("sys.__stdout__ = None; sys.stdout = 3", after) == ["C"]
    assert written("sys.stdout.close()", after) == ["C"]
