"""Grade of a tiny submission on each ready device: only a grade proves that grades work."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from evaluator.catalog import find_problem
from evaluator.doctor.diagnosis import Diagnosis, Line
from evaluator.records import DeviceKind, Status
from evaluator.sandbox.visible_files import source_root
from evaluator.scaffold.first_solution import SolutionLanguage, solution_text

if TYPE_CHECKING:
    from evaluator.progress import ProgressReceiver

_PROBLEM = "relu"
_PLAIN = """\
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
"""
_BOOT = "import sys; sys.path.insert(0, sys.argv.pop(1)); from evaluator.commands.main import main; main()"
_SHOWN = 300


def tried(diagnosis: Diagnosis, progress: "ProgressReceiver") -> Diagnosis:
    """Return the diagnosis after a grade on each ready device; a device whose grade fails is no longer ready.

    A grade ends by its own deadline. A shorter limit would declare a device broken on a busy machine.
    """
    lines = []
    for device in diagnosis.ready:
        progress.stage("grade", f"a tiny submission on {device.value}")
        lines.append(_line(device))
    failed = {device for line in lines if not line.ok for device in line.needed_for}
    ready = [device for device in diagnosis.ready if device not in failed]
    return replace(diagnosis, lines=[*diagnosis.lines, *lines], ready=ready, untried=[])


def _line(device: DeviceKind) -> Line:
    try:
        with tempfile.TemporaryDirectory(prefix="warpgrade-doctor-") as folder:
            cause = _graded(device, Path(folder))
    except OSError as error:
        cause = f"the grade did not start: {error}"
    fix = f"`warpgrade grade` on {device.value} fails like this: fix the cause, then run `warpgrade doctor` again"
    result = cause or "the grade of a tiny submission is correct"
    return Line(name=f"on {device.value}", ok=not cause, needed_for=[device], found=result, fix=fix if cause else "")


def _graded(device: DeviceKind, folder: Path) -> str:
    """Grade in a separate process, like the command line; return the reason of a failure, or ""."""
    submission = folder / "tiny.py"
    submission.write_text(_text(device), encoding="utf-8")
    options = f"--device {device.value} --size small --json --quiet --no-ready --output".split()
    grade = ["grade", _PROBLEM, str(submission), *options, str(folder / "card.json")]
    command = [sys.executable, "-P", "-c", _BOOT, str(source_root()), *grade]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WARPGRADE_GRADE_")}
    done = subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    try:
        card = json.loads(done.stdout)
        status, reason = card["status"], card["reason"]
    except (ValueError, KeyError, TypeError):
        error_output = done.stderr.decode(errors="replace").strip() or "no message"
        return f"exit status {done.returncode}: {error_output[-_SHOWN:]}"
    if status == Status.CORRECT.value:
        return ""
    cause = f"{reason['code']} {reason['message']}" if reason else "without a reason"
    return f"the grade of a tiny submission is {status.replace('_', ' ')}: {cause[-_SHOWN:]}"


def _text(device: DeviceKind) -> str:
    """Return the submission's text: with a CUDA kernel, except for the CPU."""
    return _PLAIN if device is DeviceKind.CPU else solution_text(find_problem(_PROBLEM), SolutionLanguage.CUDA)
