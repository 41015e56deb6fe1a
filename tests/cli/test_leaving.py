"""How the process of a command ends."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys, types
from evaluator.commands import terminal
{torch}
import atexit
atexit.register(lambda: print("taken apart"))
print("the product")
print("the conversation", file=sys.stderr)
terminal.leave({code})
"""
WITH_CONTEXT = """
cuda = types.SimpleNamespace(is_initialized=lambda: {up})
sys.modules["torch"] = types.SimpleNamespace(cuda=cuda)
"""


@pytest.mark.parametrize(
    ("torch", "apart"),
    [("", True), (WITH_CONTEXT.format(up=False), True), (WITH_CONTEXT.format(up=True), False)],
    ids=["without torch", "without a context", "with a context"],
)
@pytest.mark.parametrize("code", [0, 1, 3])
def test_all_that_was_written_is_there_and_only_a_context_is_left_to_the_kernel(torch, apart, code):
    command = [sys.executable, "-c", PROGRAM.format(torch=torch, code=code)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert done.stdout.splitlines() == ["the product", *(["taken apart"] if apart else [])]
    assert done.stderr.splitlines() == ["the conversation"]
