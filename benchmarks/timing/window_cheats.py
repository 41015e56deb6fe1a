"""Cheats of windows at 5, 20 and 200 us a call: what each gains over its honest twin, or that it is refused.

    python -m benchmarks.timing.window_cheats --output cheats.jsonl [--seconds 540] [--only PART ...]

The cheats are rows of the zoo and a persistent kernel (`tests/zoo/windows`), on problems that are scaled until the
first honest twin takes about the wanted time. Asked is a gain of at most 0.5 us a call wherever a speedup is quoted.

Each problem and duration has a process of its own, and each grade a try of its own: a failed grade is reported, and the
other grades go on in a new process. A repeated command makes the missing grades, and then repeats the failed ones. The
table is in the .md file beside the output. Exit code: 1 if a cheat gains more, 3 if the table is not complete, else 0.
A folder named by WARPGRADE_CACHE keeps builds from one command to the next.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

import msgspec
import torch

from benchmarks.timing.window_cheat_rows import (
    CHEATS,
    DURATIONS_US,
    SCALES,
    Cheat,
    Graded,
    at_size,
    cheats_text,
    entry_of,
    exit_code,
    graded_of,
    is_twin,
    lines_of,
    names_for,
    table,
    twin_of,
    write_problem,
)
from evaluator.records import CallKind, DeviceKind
from tests.grading.harness import passable_folder
from tests.zoo.grading import Judge

_TOP = Path(__file__).resolve().parents[2]
_GRADE_S = 240.0
"""Limit of one grade with its builds; a build takes about a minute."""
_END_S = 15.0
_LOOK_S = 0.3
_LAST_BYTES = 300
_SCALINGS = 2


class Group(NamedTuple):
    """Twins and cheats of one process, on one problem, for one duration."""

    problem: str
    duration_us: int
    names: list[str]


class Options(NamedTuple):
    """Options of a process. `tiny` grades small sizes as they are, to try the command without a GPU."""

    output: Path
    device: DeviceKind
    tiny: bool


def lines_in(output: Path) -> list[Graded]:
    """Return the grades of a file in order; a line that was cut off is none."""
    found = []
    for line in output.read_bytes().splitlines() if output.exists() else []:
        with contextlib.suppress(msgspec.DecodeError):
            found.append(msgspec.json.decode(line, type=Graded))
    return found


def read(output: Path) -> dict[tuple[str, int], Graded]:
    """Return the last grade of each cheat and twin at each duration."""
    return {(graded.name, graded.duration_us): graded for graded in lines_in(output)}


def write(output: Path, graded: Graded) -> None:
    """Append a grade, behind the end of a line that was cut off."""
    before = output.read_bytes() if output.exists() else b""
    cut_off = bool(before) and not before.endswith(b"\n")
    with output.open("ab") as file:
        file.write((b"\n" if cut_off else b"") + msgspec.json.encode(graded) + b"\n")


def groups(names: set[tuple[str, int]]) -> list[Group]:
    """Return the groups of the cheats and twins to grade, shorter durations first."""
    made = (
        Group(problem, us, [name for name in names_for(problem) if (name, us) in names])
        for us in DURATIONS_US
        for problem in SCALES
    )
    return [group for group in made if group.names]


def _grade_all(group: Group, options: Options) -> None:
    """Grade a group in this process. A failure ends the process, whose GPU context may be broken."""
    stored = [
        each.constants
        for (name, us), each in read(options.output).items()
        if name in names_for(group.problem) and us == group.duration_us and each.constants
    ]
    constants = stored[0] if stored else None
    with tempfile.TemporaryDirectory() as folder, Judge() as judge:
        for name in group.names:
            graded = _in_a_try(judge, name, group, constants, Path(folder), options)
            write(options.output, graded)
            constants = constants or graded.constants
            if graded.error:
                return


def _in_a_try(
    judge: Judge, name: str, group: Group, constants: dict[str, int] | None, folder: Path, options: Options
) -> Graded:
    """Grade a twin or a cheat. The first twin scales the problem, if no grade has fixed its constants."""
    scale, cheat = SCALES[group.problem], _cheat_of(name)
    used = constants or _first_constants(group, cheat, options)
    try:
        for _ in range(_SCALINGS):
            graded = _graded(judge, name, group, used, folder, options)
            is_settled = constants is not None or options.tiny or not is_twin(name)
            if is_settled or graded.call_us is None or graded.calls != CallKind.WINDOWS.value:
                return graded
            scaled = scale.rescaled(group.duration_us, used, graded.call_us)
            if scaled == used:
                return graded
            used = scaled
        return _graded(judge, name, group, used, folder, options)
    except Exception as error:  # noqa: BLE001 - reported in the table; the others go on
        message = f"{type(error).__name__}: {error}"[:300]
        return Graded(name=name, duration_us=group.duration_us, constants=used, error=message)


def _first_constants(group: Group, cheat: Cheat, options: Options) -> dict[str, int]:
    if not options.tiny:
        return SCALES[group.problem].guesses[group.duration_us]
    small = entry_of(cheat).problem().sizes
    return {key: int(value) for key, value in next(reversed(small.values())).items() if isinstance(value, int)}


def _cheat_of(name: str) -> Cheat:
    """Return the cheat with that name, or one with that twin."""
    return next(cheat for cheat in CHEATS if name in (cheat.title, twin_of(cheat)))


def _graded(judge: Judge, name: str, group: Group, constants: dict[str, int], folder: Path, options: Options) -> Graded:
    cheat = _cheat_of(name)
    entry = entry_of(cheat)
    text = folder / "cheat.py"
    text.write_text(cheats_text(cheat, group.duration_us))
    entry = at_size(entry, write_problem(entry, constants, folder), options.device, text)
    outcome = judge.honest(entry) if is_twin(name) else judge.cheat(entry).outcome
    return graded_of(name, group.duration_us, constants, outcome)


def _run(group: Group, options: Options, until_s: float) -> None:
    """Run processes until each name of the group has a grade or a failure, or the time is over."""
    left = list(group.names)
    while left and time.monotonic() < until_s:
        before = len(lines_in(options.output))
        fault = _in_a_process(group._replace(names=left), options, until_s)
        new = [graded.name for graded in lines_in(options.output)[before:]]
        if not new and time.monotonic() < until_s:
            write(options.output, Graded(name=left[0], duration_us=group.duration_us, error=fault))
            print(f"{group.duration_us} us  {left[0]}: {fault}", flush=True)
            new = left[:1]
        left = [name for name in left if name not in new]


def _in_a_process(group: Group, options: Options, until_s: float) -> str:
    """Grade a group in a process, which ends when a grade or the whole takes too long; return how the process ended."""
    command = [sys.executable, "-m", "benchmarks.timing.window_cheats", "--output", str(options.output.absolute())]
    command += ["--device", options.device.value, "--one", msgspec.json.encode(group).decode()]
    command += ["--tiny"] if options.tiny else []
    shown, grade_until_s = len(lines_in(options.output)), time.monotonic() + _GRADE_S
    with tempfile.TemporaryFile() as said, _started(command, said) as process:
        is_running = True
        while is_running and time.monotonic() < min(until_s, grade_until_s):
            time.sleep(_LOOK_S)
            is_running = process.poll() is None
            for graded in lines_in(options.output)[shown:]:
                print(f"{graded.duration_us} us  {graded.name}: {_words(graded)}", flush=True)
                shown, grade_until_s = shown + 1, time.monotonic() + _GRADE_S
            options.output.with_suffix(".md").write_text(table(read(options.output)))
        if process.poll() is None:
            return f"no end after {_GRADE_S:g} s"
        said.seek(max(said.seek(0, os.SEEK_END) - _LAST_BYTES, 0))
        return f"the process ended with {process.returncode}: {said.read().decode(errors='replace')}"


@contextlib.contextmanager
def _started(command: list[str], said: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process in a session of its own, and end the session's processes."""
    with subprocess.Popen(command, cwd=_TOP, stdout=said, stderr=said, start_new_session=True) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                if process.poll() is None:
                    process.send_signal(signal.SIGINT)  # The judge ends its runners.
                    process.wait(_END_S)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _words(graded: Graded) -> str:
    if graded.error or graded.status is None:
        return graded.error
    call = "" if graded.call_us is None else f" {graded.call_us:.2f} us"
    speedup = "" if graded.speedup is None else f", speedup {graded.speedup:.3f}"
    return f"{graded.status.value} {graded.code}{call}{speedup} {' '.join(graded.findings)}"


def chosen_names(parts: list[str] | None) -> set[tuple[str, int]]:
    """Return the cheats with one of `parts` in their titles and their twins, by name and duration."""
    cheats = [cheat for cheat in CHEATS if not parts or any(part in cheat.title for part in parts)]
    return {(name, us) for cheat in cheats for us in DURATIONS_US for name in (twin_of(cheat), cheat.title)}


def main(arguments: list[str] | None = None) -> int:
    """Make the missing grades, then repeat the failed grades of earlier commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="file of JSON lines; the table is a .md beside it")
    parser.add_argument("--seconds", type=float, default=3600.0, help="time limit of the command")
    parser.add_argument("--only", nargs="+", help="parts of the cheats' names")
    parser.add_argument("--device", type=DeviceKind, default=DeviceKind.CUDA, help=argparse.SUPPRESS)
    parser.add_argument("--tiny", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    options, until_s = Options(given.output, given.device, given.tiny), time.monotonic() + given.seconds
    if given.one is not None:
        _grade_all(msgspec.json.decode(given.one, type=Group), options)
        return 0
    if options.device is DeviceKind.CUDA and not torch.cuda.is_available():
        parser.error("there is no GPU here")
    earlier, chosen = read(options.output), chosen_names(given.only)
    failed = {key for key in chosen if key in earlier and earlier[key].has_failed}
    with passable_folder() as cache:
        os.environ.setdefault("WARPGRADE_CACHE", str(cache))
        for group in [*groups(chosen - earlier.keys()), *groups(failed)]:
            _run(group, options, until_s)
    text = table(read(options.output))
    options.output.with_suffix(".md").write_text(text)
    print(text)
    return exit_code(lines_of(read(options.output)).values())


if __name__ == "__main__":
    sys.exit(main())
