"""What a speedup is worth where the truth is known: the reference against itself, by the product's own clock.

    python benchmarks/speedup_courtroom.py [--output FILE] [--only NAME] [--limit N] [--repeats N] [--budget SECONDS]

times eight problems from 10 us to 10 ms on a GPU, each several times, as `warpgrade grade` times a submission: the
reference, the same program handed in as a submission, and the reference again, each in a runner of its own. A speedup
other than 1 is the clock's error. The results are in FILE after every repeat (JSON); the table goes to stdout. With
`--device cpu` the problems have their small sizes: a trial of this script, and of that clock.
"""

import argparse
import datetime
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

TOP = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP))

from evaluator.catalog import find_problem  # noqa: E402
from evaluator.devices.gpu import Gpu, choose  # noqa: E402
from evaluator.grade_options import GradeOptions  # noqa: E402
from evaluator.records import DeviceKind, Problem, SandboxMode, SizeName, Timing  # noqa: E402
from evaluator.report.layout.text import duration  # noqa: E402

AS_SUBMISSION = "from model import Model\n\n\nclass ModelNew(Model):\n    pass\n"
LONG_MS, SHORT_MS = 0.2, 0.02
LONG_ERROR, SHORT_ERROR = 0.005, 0.03
HOLDS = 0.9


class Case(NamedTuple):
    """A problem, and constants that give it the time wanted on an H200; None leaves its full size."""

    name: str
    problem: str
    constants: dict[str, int] | None


CASES = (
    Case("relu 4 Mi", "relu", {"batch_size": 64, "dim": 65536}),
    Case("gelu 8 Mi", "gelu", {"batch_size": 64, "dim": 131072}),
    Case("softmax 32 Mi", "softmax", {"batch_size": 4096, "dim": 8192}),
    Case("cross_entropy", "cross_entropy", {"batch_size": 32768, "num_classes": 2048}),
    Case("layer_norm", "layer_norm", {"tokens": 65536, "hidden_size": 4096}),
    Case("matmul", "matmul", {"rows": 2048, "inner": 4096, "columns": 2048}),
    Case("linear_relu_divide", "linear_relu_divide", None),
    Case("matmul 6400", "matmul", {"rows": 6400, "inner": 6400, "columns": 6400}),
)


def problem_of(case: Case, device: DeviceKind) -> tuple[Problem, SizeName]:
    """Read a case's problem, with its constants; on the host, as small as it comes."""
    problem = find_problem(case.problem)
    if device is DeviceKind.CPU:
        return problem, SizeName.SMALL
    sizes = {SizeName.FULL: problem.sizes[SizeName.FULL] | (case.constants or {})}
    return replace(problem, sizes=sizes, split=problem.split), SizeName.FULL


def repeats(case: Case, device: DeviceKind, gpu: Gpu | None, fork_server, share_s: float) -> Iterator[Timing]:  # noqa: ANN001
    """Time one case again and again, until its share of the time is spent."""
    from evaluator.judge import stages
    from evaluator.judge.context.grade_context import GradeContext
    from evaluator.judge.context.reference_timing import ReferenceTimer
    from evaluator.judge.setup.grade_terms import GradeTerms
    from evaluator.judge.setup.seed_book import SeedBook

    began_s = time.monotonic()
    problem, size = problem_of(case, device)
    terms = GradeTerms(
        problem,
        GradeOptions(device=device, size=size),
        gpu,
        threads=len(os.sched_getaffinity(0)),
    )
    with (
        GradeContext(terms, AS_SUBMISSION, SeedBook(None), fork_server=fork_server) as context,
        ReferenceTimer(context) as timer,
    ):
        context.take_device()
        context.settle()
        while time.monotonic() - began_s < share_s:
            timed = stages.measure_both(context, timer)
            if timed.timing is None:
                raise SystemExit(f"{case.name}: the reference does not pass as its own submission: {timed.fault}")
            yield timed.timing


def record(timing: Timing) -> dict[str, object]:
    """Keep what one repeat says, samples included."""
    ratio = timing.reference_median_ms / timing.submission_median_ms if timing.submission_median_ms else None
    low, high = timing.speedup_low, timing.speedup_high
    return {
        "reference_ms": timing.reference_median_ms,
        "submission_ms": timing.submission_median_ms,
        "ratio": ratio,
        "quoted": timing.speedup is not None,
        "low": low,
        "high": high,
        "holds_one": (low is None or low <= 1) and (high is None or high >= 1),
        "significant": timing.significant,
        "resolution_ms": timing.resolution_ms,
        "samples_ms": {
            "before": timing.reference_before.samples_ms,
            "submission": timing.submission.samples_ms,
            "after": timing.reference_after.samples_ms,
        },
    }


def judged(results: dict) -> dict[str, object]:
    """Hold the results against what was promised of them."""
    cases = [case for case in results["cases"] if case["repeats"]]
    everything = [repeat for case in cases for repeat in case["repeats"]]
    errors = {case["name"]: (reference_ms(case), error(case)) for case in cases}
    long = {name: off for name, (ms, off) in errors.items() if ms >= LONG_MS}
    short = {name: off for name, (ms, off) in errors.items() if SHORT_MS <= ms < LONG_MS}
    holding = sum(repeat["holds_one"] for repeat in everything)
    return {
        "long_within": all(off <= LONG_ERROR for off in long.values()),
        "short_within": all(off <= SHORT_ERROR for off in short.values()),
        "holding": holding,
        "repeats": len(everything),
        "holding_enough": holding >= HOLDS * len(everything),
    }


def reference_ms(case: dict) -> float:
    """Give a case's time: the median of its repeats' references."""
    return statistics.median(repeat["reference_ms"] for repeat in case["repeats"])


def error(case: dict) -> float:
    """Give the median distance of the ratios from 1; a submission that took no time is infinitely far."""
    return statistics.median(abs((repeat["ratio"] or float("inf")) - 1) for repeat in case["repeats"])


def table(results: dict) -> str:
    """Write the results as Markdown, and what they come to."""
    lines = [
        "| problem | reference | clock tells | median of abs(speedup - 1) | largest | holds 1 | quoted |",
        "|---|---|---|---|---|---|---|",
    ]
    for case in results["cases"]:
        if not case["repeats"]:
            continue
        found, count = case["repeats"], len(case["repeats"])
        largest = max(abs((repeat["ratio"] or float("inf")) - 1) for repeat in found)
        tells = duration(statistics.median(repeat["resolution_ms"] for repeat in found), "u")
        cells = [
            case["name"],
            duration(reference_ms(case), "u"),
            tells,
            f"{error(case):.2%}",
            f"{largest:.2%}",
            f"{sum(repeat['holds_one'] for repeat in found)} of {count}",
            f"{sum(repeat['quoted'] for repeat in found)} of {count}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    said = judged(results)
    enough = "enough" if said["holding_enough"] else "TOO FEW"
    lines += [
        "",
        f"- from {LONG_MS:g} ms up, at most {LONG_ERROR:.1%} off: {'yes' if said['long_within'] else 'NO'}",
        f"- from {SHORT_MS:g} ms up, at most {SHORT_ERROR:.0%} off: {'yes' if said['short_within'] else 'NO'}",
        f"- the interval holds 1 in {said['holding']} of {said['repeats']}: {enough}",
    ]
    return "\n".join(lines) + "\n"


def write(results: dict, path: Path) -> None:
    """Put the results on the disk, whole or not at all."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)


def main() -> None:
    """Time the cases and print the table."""
    parser = argparse.ArgumentParser(description="Hold the reference against itself.")
    parser.add_argument("--output", type=Path, default=Path("speedup_courtroom.json"))
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="cases whose name has this in it")
    parser.add_argument("--limit", type=int, metavar="N", help="the first N cases")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--budget", type=float, default=220.0, metavar="SECONDS", help="shared out among the cases")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    options = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    device = DeviceKind(options.device)
    gpu = choose(None) if device is DeviceKind.CUDA else None
    chosen = [case for case in CASES if not options.only or any(part in case.name for part in options.only)]
    chosen = chosen[: options.limit]
    if not chosen:
        parser.error(f"no case has that name; there are {', '.join(case.name for case in CASES)}")

    from evaluator.environment import environment
    from evaluator.judge.runners.fork_servers import fork_server_for

    threads = len(os.sched_getaffinity(0))
    machine = environment(threads)
    results: dict = {
        "began_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": device.value,
        "name": machine.cpu if gpu is None else gpu.name,
        "driver": None if gpu is None else gpu.driver,
        "torch": machine.torch,
        "cases": [],
    }
    began_s = time.monotonic()
    write(results, options.output)
    with fork_server_for(device, None if gpu is None else gpu.uuid, SandboxMode.FULL, threads) as fork_server:
        for number, case in enumerate(chosen):
            found: dict = {"name": case.name, "problem": case.problem, "constants": case.constants, "repeats": []}
            results["cases"].append(found)
            # What a case leaves of its share, the others have.
            share_s = (options.budget - (time.monotonic() - began_s)) / (len(chosen) - number)
            for timing in repeats(case, device, gpu, fork_server, share_s):
                found["repeats"].append(record(timing))
                write(results, options.output)
                done = len(found["repeats"])
                print(f"{case.name}: {done} of {options.repeats}", file=sys.stderr)
                if done >= options.repeats:
                    break
            results["wall_s"] = time.monotonic() - began_s
            results["judged"] = judged(results)
            write(results, options.output)
    print(table(results))


if __name__ == "__main__":
    main()
