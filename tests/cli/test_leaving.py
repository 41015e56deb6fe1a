"""How the process of a command ends."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import atexit, sys, types
from evaluator.commands import terminal
{torch}
atexit.register(lambda: print("taken apart"))
print("the product")
print("the conversation", file=sys.stderr)
terminal.leave({code})
"""
LOADED = "sys.modules['torch'] = types.ModuleType('torch')"


@pytest.mark.parametrize(("torch", "apart"), [("", True), (LOADED, False)], ids=["without torch", "with torch"])
@pytest.mark.parametrize("code", [0, 1, 3])
def test_all_that_was_written_is_there_and_torch_is_not_taken_apart(torch, apart, code):
    command = [sys.executable, "-c", PROGRAM.format(torch=torch, code=code)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert done.stdout.splitlines() == ["the product", *(["taken apart"] if apart else [])]
    assert done.stderr.splitlines() == ["the conversation"]


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["for people", "JSON"])
def test_a_disk_that_is_full_is_no_fault_of_ours(options):
    command = [sys.executable, "-c", "import cli; cli.main()", "problems", "list", *options]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr.startswith("error: cannot write to stdout: No space left on device")
    assert "Traceback" not in done.stderr
