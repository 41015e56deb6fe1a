"""Runs the command line on a submission, in a process and a folder of its own, and holds it to its promises.

For every submission, a grade ends with an exit code that fits the verdict, a whole scorecard or none, a screen
that says what to do next, and no process left. `Grader` asserts that for every run, so the tests only say which
verdict they expect.
"""

import contextlib
import ctypes
import itertools
import os
import re
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from evaluator.files.card_files import card_bytes, read_card
from evaluator.findings import ENTRIES, Code
from evaluator.records import Scorecard, Status
from evaluator.schema import check_card
from tests.grading.preloaded import PreloadedCommand

TOP = Path(__file__).parents[2]
PROGRESS = ("read", "prepare", "lint", "build", "device", "reference", "check", "time", "roofline", "profile", "replay")
EXIT_CODES = {Status.CORRECT: 0, Status.INFRA_ERROR: 3}
"""Those that are not 1."""
PATIENT_S = 60.0
"""What a call may take where no test waits for a time-out: a busy machine must not look like an endless forward."""
SOON_S = 2.5
"""What a call may take where it never ends."""
CHECK = ("--mode", "check")
"""Where no test asks for a time: timing takes most of the CPU time of a small grade that is right."""
PATIENT_BUILD_S = 1200.0
"""What builds may take where no test waits for that limit."""
_LIMIT_S = 1500
_GONE_S = 300.0
"""A process that is importing torch sees only afterwards that its parent is gone: slow on a busy machine."""
_PATIENT_BUILD = ("--build-timeout", f"{PATIENT_BUILD_S:g}")
_PR_SET_CHILD_SUBREAPER = 36
COMMAND = PreloadedCommand()
"""For all graders of this process."""


def limit_s(status: Status) -> float:
    """Return what a call may take where `status` is expected."""
    return SOON_S if status is Status.TIMEOUT else PATIENT_S


class Run(NamedTuple):
    """What a command did: its exit code, what it said, and the card that it left, if it left one."""

    code: int
    out: str
    err: str
    card: Scorecard | None
    folder: Path

    def assert_verdict(self, status: Status, code: Code | None = None, *, line: int | None = None) -> Scorecard:
        """Assert the verdict, its reason and the line of the submission that it points at; give the card."""
        assert self.card is not None, self.err
        assert (self.card.status, self.reason) == (status, code), self.card.reason
        if line is not None:
            assert self.card.reason.line == line
            shown = self.card.submission.source.splitlines()[line - 1].strip()
            assert shown[:40] in self.out
        return self.card

    @property
    def reason(self) -> Code | None:
        return None if self.card.reason is None else Code(self.card.reason.code)

    @property
    def findings(self) -> list[Code]:
        return [Code(finding.code) for finding in self.card.findings]


class Grader:
    """Runs `warpgrade grade`. All runs of one grader share the cache of builds."""

    def __init__(self, cache: Path, temporary: Path) -> None:
        self.temporary = temporary
        keep = {name: value for name, value in os.environ.items() if not name.startswith("WARPGRADE")}
        self.environment = {
            **keep,
            "WARPGRADE_CACHE": str(cache),
            "TMPDIR": str(temporary),
            "COLUMNS": "100",
            "WARPGRADE_READY": "0",
        }

    def __call__(
        self,
        folder: Path,
        source: str | bytes | None,
        *options: str | Path,
        problem: str = "relu",
        name: str = "mine.py",
        stdin: bytes | None = None,
        timeout_s: float = PATIENT_S,
    ) -> Run:
        """Grade `source` in `folder`; with `stdin` the submission is `-`, without `source` it is in `options`."""
        arguments: list[str | Path] = [problem]
        if source is not None:
            data = source.encode() if isinstance(source, str) else source
            (folder / name).write_bytes(data)
            arguments.append(name)
        elif stdin is not None:
            arguments.append("-")
        if problem == "relu" and "--size" not in options:
            options = (*options, "--size", "awkward")
        return self.run(folder, *arguments, "--timeout", f"{timeout_s:g}", *options, stdin=stdin)

    def run(self, folder: Path, *arguments: str | Path, stdin: bytes | None = None) -> Run:
        """Run `grade` with just these arguments."""
        target = folder / "card.json"
        before = set(folder.rglob("*"))
        command = self.command(*arguments, "--output", target)[2:]
        COMMAND.start(command[len(command) - command[::-1].index("--device")])
        with nobody_left_behind():
            done = COMMAND.run(command, cwd=folder, env=self.environment, stdin=stdin, timeout_s=_LIMIT_S)
        out, err = done.stdout.decode(), done.stderr.decode()
        card = read_card(target) if target.exists() else None
        result = Run(done.returncode, out, err, card, folder)
        self._check_promises(result, target, as_json="--json" in arguments)
        assert set(folder.rglob("*")) - before <= {target}
        # PyTorch, too, may make a folder here; it is not ours to remove.
        assert list(self.temporary.glob("warpgrade*")) == []
        return result

    def command(self, *arguments: str | Path) -> list[str]:
        patient = () if "--build-timeout" in arguments or "--replay" in arguments else _PATIENT_BUILD
        return [sys.executable, str(TOP / "cli.py"), "grade", "--device", "cpu", *patient, *map(str, arguments)]

    @contextlib.contextmanager
    def running(self, folder: Path, *arguments: str | Path) -> Iterator[subprocess.Popen[bytes]]:
        """Start `grade` and hand it over while it runs."""
        with subprocess.Popen(
            self.command(*arguments, "--output", folder / "card.json"),
            cwd=folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def _check_places(self, run: Run, card: Scorecard) -> None:
        """Assert that the stages are counted from 1, and up to the last one where nothing ends a grade early.

        A later stage waits for the GPU where another grade has it: stage `device` comes again, without a new number.
        The stages of further cases have no number of their own.
        """
        places = re.findall(r"^(\w+) \((\d+) of (\d+)\)", run.err, re.MULTILINE)
        numbers = [int(number) for _, number, _ in places]
        assert numbers == sorted(numbers), run.err
        assert set(numbers) == set(range(1, len(set(numbers)) + 1)), run.err
        again = [stage for (_, *place), (stage, *after) in itertools.pairwise(places) if after == place]
        assert card.cases or set(again) <= {"device"}, run.err
        assert card.status is not Status.CORRECT or not places or places[-1][1] == places[-1][2], run.err

    def _check_promises(self, run: Run, target: Path, *, as_json: bool) -> None:
        assert "Traceback" not in run.err
        assert "fault in Warpgrade" not in run.err
        if run.card is None:
            assert run.code in (2, 3)
            assert "error: " in run.err or "Error: " in run.err
            assert run.out == ""
            return
        card = run.card
        assert check_card(target) == []
        assert run.code == EXIT_CODES.get(card.status, 1)
        assert all(line.startswith(PROGRESS) for line in run.err.splitlines()), run.err
        assert (card.reason is None) == (card.status is Status.CORRECT)
        self._check_places(run, card)
        if as_json:
            assert run.out.encode() == card_bytes(card) == target.read_bytes()
            return
        screen = words(run.out)
        assert card.status.value.replace("_", " ") in screen
        assert not any(character < " " and character != "\n" for character in run.out)
        if card.reason is not None:
            advice, entry = card.reason.next_step, ENTRIES[Code(card.reason.code)]
            # Steps of these findings depend on what failed.
            own_step = card.reason.code in (Code.BINDING, Code.JUDGE_FAILED)
            assert own_step or advice in (entry.next_step, *entry.other_steps)
            assert words(advice) in screen
            assert f"warpgrade explain {card.reason.code}" in screen


def words(text: str) -> str:
    """Undo the wrapping of lines."""
    return " ".join(text.split())


@contextlib.contextmanager
def nobody_left_behind() -> Iterator[None]:
    """Assert that every process started within is gone. This process adopts the orphans, so none can hide."""
    adopt_orphans()
    before = descendants()
    yield
    deadline = time.monotonic() + _GONE_S
    while (left := descendants() - before) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left, [process.as_dict(["pid", "status", "cmdline"]) for process in left]


def adopt_orphans() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def descendants() -> set[psutil.Process]:
    found = set()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.status() == psutil.STATUS_ZOMBIE and process.ppid() == os.getpid():
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(process.pid, os.WNOHANG)
            else:
                found.add(process)
    return found


@contextlib.contextmanager
def passable_folder() -> Iterator[Path]:
    """Make a folder that a runner's own user may pass through; pytest's are closed to it."""
    with tempfile.TemporaryDirectory(prefix="grading-") as folder:
        Path(folder).chmod(stat.S_IRWXU | stat.S_IXGRP | stat.S_IXOTH)
        yield Path(folder)


def module(*lines: str, forward: Sequence[str] = ("return torch.relu(x)",), init: Sequence[str] = ()) -> str:
    """Write a submission: `lines` at the top of the module, then a ModelNew with these bodies."""
    constructor = ["    def __init__(self):", "        super().__init__()", *(f"        {line}" for line in init)]
    return "\n".join(
        [
            "import torch",
            "from torch import nn",
            *lines,
            "class ModelNew(nn.Module):",
            *(constructor if init else []),
            "    def forward(self, x):",
            *(f"        {line}" for line in forward),
            "",
        ]
    )
