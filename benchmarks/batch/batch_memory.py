"""How much memory each process of a batch takes.

    python -m benchmarks.batch.batch_memory SUBMISSIONS [--device emulated] [--jobs N] [--repeat-s 0.5]

Grades the folder in a new run and reads /proc of the batch and all its descendants twice a second. For each role: the
largest number of processes at a time, the largest RSS, and the largest PSS of one process, in MiB. RSS counts memory
that forked processes share in each of them; PSS divides it among them, so only PSS may be added. `together` is the
largest sum of PSS of all processes at one time. Roles follow from the tree: docs/architecture.md describes it.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TOP = Path(__file__).parents[2]
_MIB = 1024
_NEXT = {"starter": "supervisor", "supervisor": "warden"}


class Process(NamedTuple):
    """One process with its memory in KiB."""

    role: str
    rss_kib: int
    pss_kib: int


def processes(root: int) -> list[Process]:
    """Return the processes of the batch with the id `root`."""
    children: dict[int, list[int]] = defaultdict(list)
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            children[int(path.read_text().rpartition(")")[2].split()[1])].append(int(path.parent.name))
    return list(_below(root, "batch", children))


def _below(process: int, role: str, children: dict[int, list[int]]) -> Iterator[Process]:
    with contextlib.suppress(OSError, ValueError):
        yield Process(role, *_memory(process))
    for child in children[process]:
        yield from _below(child, _role(child, role), children)


def _role(process: int, parent: str) -> str:
    """Return the role of a process by that of its parent and its command line."""
    if parent in _NEXT:
        return _NEXT[parent]
    try:
        command = Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return "compiler"
    match parent:
        case "batch":
            return "worker"
        case "worker":
            return "starter" if b"evaluator.sandbox.init" in command else "judge"
        case "warden":
            return "runner" if b"evaluator.sandbox.init" in command else "compiler"
        case _:
            return "compiler"


def _memory(process: int) -> tuple[int, int]:
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    found = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.startswith(("Rss:", "Pss:"))}
    if len(found) != 2:
        raise ValueError("a process without memory: it is ending")
    return found["Rss"], found["Pss"]


def measure(command: list[str], repeat_s: float) -> dict[str, object]:
    """Run the batch and return the figures."""
    most: dict[str, dict[str, int]] = defaultdict(lambda: {"processes": 0, "rss_mib": 0, "pss_mib": 0})
    together_kib, samples = 0, 0
    batch = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    began_s = time.monotonic()
    while batch.poll() is None:
        found = processes(batch.pid)
        samples += 1
        counts = Counter(each.role for each in found)
        together_kib = max(together_kib, sum(each.pss_kib for each in found))
        for each in found:
            of_role = most[each.role]
            of_role["processes"] = max(of_role["processes"], counts[each.role])
            of_role["rss_mib"] = max(of_role["rss_mib"], each.rss_kib // _MIB)
            of_role["pss_mib"] = max(of_role["pss_mib"], each.pss_kib // _MIB)
        time.sleep(repeat_s)
    return {
        "exit": batch.returncode,
        "wall_s": round(time.monotonic() - began_s, 1),
        "samples": samples,
        "cores": len(os.sched_getaffinity(0)),
        "together_mib": together_kib // _MIB,
        "roles": most,
    }


def main() -> None:
    """Grade the submissions and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("submissions", type=Path)
    parser.add_argument("--device", choices=["emulated", "cpu", "cuda"], default="emulated")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--repeat-s", type=float, default=0.5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="batch-memory-", ignore_cleanup_errors=True) as folder:
        command = [sys.executable, str(TOP / "cli.py"), "batch", str(arguments.submissions)]
        command += ["--run", f"{folder}/run", "--device", arguments.device]
        command += [] if arguments.jobs is None else ["--jobs", str(arguments.jobs)]
        print(json.dumps(measure(command, arguments.repeat_s), indent=1))


if __name__ == "__main__":
    main()
