"""Seven functions from 5 us to 1 ms on `cpu`: the reference against itself, in windows and in single calls.

    python -m benchmarks.timing.host_windows_table --output host_windows.json

Each function is a problem whose submission is the reference, graded five times. In one process: calls one behind the
other, with inputs of their own and outputs that are kept (new), or with one input and outputs in the same memory (hot).
A repeated command continues with the missing grades, and writes a .md file beside the output. Windows need a core each
for judge and runner, so other programs should rest; the table names the load.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

_SOURCE = """\
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return {forward}


def get_inputs():
    return [torch.randn({shape})]


def get_init_inputs():
    return []
"""
_AS_SUBMISSION = "from model import Model\n\n\nclass ModelNew(Model):\n    pass\n"
FUNCTIONS = {
    "relu, 4 Ki": ("torch.relu(x)", "4, 1024"),
    "relu, 16 Ki": ("torch.relu(x)", "16, 1024"),
    "row sums of cos, 32 x 128": ("torch.cos(x).sum(1)", "32, 128"),
    "softmax, 64 x 256": ("torch.softmax(x, 1)", "64, 256"),
    "tanh, 32 Ki": ("torch.tanh(x)", "32, 1024"),
    "product, 256": ("x @ x", "256, 256"),
    "product, 400": ("x @ x", "400, 400"),
}
ROUNDS = 5
_CALLS = 16
_TIMEOUT_S = 300.0


def graded(source: str) -> dict[str, Any]:
    """Return the times of both sides, in windows where there are any, and as single calls."""
    with tempfile.TemporaryDirectory() as folder:
        problem, same, card = (Path(folder) / name for name in ("timed.py", "same.py", "card.json"))
        problem.write_text(source)
        same.write_text(_AS_SUBMISSION)
        command = [sys.executable, "cli.py", "grade", str(problem), str(same), "--device", "cpu", "--values", "own"]
        command += ["--size", "full", "--output", str(card)]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_TIMEOUT_S)
        if not card.exists():
            return {"failure": (done.stderr or done.stdout)[-300:]}
        timing = json.loads(card.read_text())["timing"]
    if timing is None:
        return {"failure": "no times"}
    sides = [timing[name] for name in ("reference_before", "submission", "reference_after")]
    single_ms = [(side["windows"] or {}).get("single_ms") or side["samples_ms"] for side in sides]
    return {
        "in_windows": all(side["windows"] for side in sides),
        "sides_us": [side["median_ms"] * 1e3 for side in sides],
        "error_us": [side["windows"]["clock_error_ms"] * 1e3 for side in sides if side["windows"]],
        "single_us": [statistics.median(each) * 1e3 for each in single_ms],
        "single_error_us": max(max(side["overhead_ms"], side["overhead_iqr_ms"]) for side in sides) * 1e3,
        "ratio": timing["reference_median_ms"] / max(timing["submission_median_ms"], 1e-9),
        "speedup": timing["speedup"],
        "low": timing["speedup_low"],
        "high": timing["speedup_high"],
        "load": os.getloadavg()[0],
    }


def in_one_process(source: str) -> dict[str, float]:
    """Return the median times of a call in this process, in us: with new inputs and outputs, and with hot ones."""
    import torch

    torch.set_num_threads(1)
    space: dict[str, Any] = {}
    exec(source, space)
    model = space["Model"]()
    found: dict[str, list[float]] = {"new_us": [], "hot_us": []}
    with torch.no_grad():
        for _ in range(40):
            given = [space["get_inputs"]()[0] for _ in range(_CALLS)]
            for key, inputs in (("new_us", given), ("hot_us", given[:1] * _CALLS)):
                kept = []
                for x in inputs:
                    start_ns = time.perf_counter_ns()
                    out = model(x)
                    found[key].append((time.perf_counter_ns() - start_ns) / 1e3)
                    kept += [out] if key == "new_us" else []
    return {key: statistics.median(times) for key, times in found.items()}


def table(rows: dict[str, dict[str, Any]]) -> str:
    """Return the results in Markdown."""
    text = [
        "| function | windows | error | A/A | 95 % interval | quoted | single calls | error | new | hot | load |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        good = [each for each in row["grades"] if each.get("in_windows")]
        singles = [each for each in row["grades"] if "single_us" in each]
        if not good:
            text.append(f"| {name} | no windows in {len(row['grades'])} grades | | | | | | | | | |")
            continue
        middle = statistics.median
        sides = [time_us for each in good for time_us in each["sides_us"]]
        ratios = [each["ratio"] for each in good]
        widths = [(each["low"], each["high"]) for each in good if each["low"] is not None and each["high"] is not None]
        ends = [middle(each) for each in zip(*widths, strict=True)]
        width = " to ".join(f"{end:.2f}" for end in ends) or "unbounded"
        singly = [time_us for each in singles for time_us in each["single_us"]]
        text.append(
            f"| {name} | {middle(sides):.1f} | {middle([max(each['error_us']) for each in good]):.1f} "
            f"| {min(ratios):.2f} to {max(ratios):.2f} | {width} "
            f"| {sum(each['speedup'] is not None for each in good)} of {len(row['grades'])} "
            f"| {min(singly):.0f} to {max(singly):.0f} "
            f"| {middle([each['single_error_us'] for each in singles]):.0f} "
            f"| {row['new_us']:.1f} | {row['hot_us']:.1f} | {middle([each['load'] for each in good]):.1f} |"
        )
    return "\n".join(["Times in us.", "", *text]) + "\n"


def main() -> int:
    """Grade the functions that the output lacks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="file of JSON")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="grades of each function")
    options = parser.parse_args()
    rows: dict[str, dict[str, Any]] = json.loads(options.output.read_text()) if options.output.exists() else {}
    for number in range(options.rounds):
        for name, (forward, shape) in FUNCTIONS.items():
            source = _SOURCE.format(forward=forward, shape=shape)
            row = rows.setdefault(name, {"grades": [], **in_one_process(source)})
            if len(row["grades"]) > number:
                continue
            row["grades"].append(graded(source))
            options.output.write_text(json.dumps(rows, indent=1))
            options.output.with_suffix(".md").write_text(table(rows))
            print(name, row["grades"][-1], flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
