"""Forty references graded against themselves: how far speedups are from 1, and how many intervals hold 1.

    python -m benchmarks.timing.itself_table FOLDER [--device cuda] [--rounds 5] [--only PART ...]

Twenty of the kernels are those of `windows_table`; more than half of the forty take less than 50 us on an H200. Each is
a problem whose submission is the reference, graded once in each round by one batch. FOLDER keeps the problems, the run
and the table (table.md); a repeated command resumes. Asked is a median error of at most 0.3 % above 100 us, 1 % from 20
us and 3 % from 5 us, and 93 to 97 of 100 intervals that hold 1.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from benchmarks.timing.windows_table import AS_SUBMISSION, KERNELS, Kernel, of, product, source_of
from evaluator.files.card_files import read_card
from evaluator.records import DeviceKind, Scorecard, Status

_TOP = Path(__file__).resolve().parents[2]
_CONVOLUTION = "torch.nn.functional.conv2d(x, k, padding=1)"
BANDS_MS = {"below 5 us": 0.0, "5 to 20 us": 0.005, "20 to 100 us": 0.02, "100 us and more": 0.1}

MORE = {
    "add 16 Ki": Kernel("a, b", "a + b", "torch.randn(128, 128), torch.randn(128, 128)"),
    "add 1 Mi": Kernel("a, b", "a + b", "torch.randn(1024, 1024), torch.randn(1024, 1024)"),
    "add 16 Mi": Kernel("a, b", "a + b", "torch.randn(4096, 4096), torch.randn(4096, 4096)"),
    "tanh 256 Ki": of("torch.tanh(x)", 512, 512),
    "silu 2 Mi": of("torch.nn.functional.silu(x)", 1024, 2048),
    "exp 16 Mi": of("torch.exp(x)", 4096, 4096),
    "sigmoid, mul 4 Mi": of("torch.sigmoid(x) * x", 2048, 2048),
    "mean of columns 1024 x 1024": of("x.mean(0)", 1024, 1024),
    "largest of rows 2048 x 2048": of("x.amax(1)", 2048, 2048),
    "variance of rows 1024 x 4096": of("x.var(1)", 1024, 4096),
    "log softmax 1024 x 4096": of("torch.log_softmax(x, 1)", 1024, 4096),
    "norm of rows, division 1024 x 1024": of("x / x.norm(dim=1, keepdim=True)", 1024, 1024),
    "transposed copy 2048 x 2048": of("x.t().contiguous()", 2048, 2048),
    "first 64 of rows 4096 x 256": of("x[:, :64] * 2", 4096, 256),
    "product 4096 x 128 x 128": product(4096, 128, 128),
    "product 128 x 4096 x 128": product(128, 4096, 128),
    "matrix times vector 4096": product(4096, 4096, 1),
    "product, clamp 1024": Kernel("a, b", "torch.clamp(a @ b, min=0)", product(1024, 1024, 1024).inputs),
    "convolution 16 x 64 x 56 x 56": Kernel(
        "x, k", _CONVOLUTION, "torch.randn(16, 64, 56, 56), torch.randn(64, 64, 3, 3) / 24"
    ),
    "mean of pools 16 x 64 x 112 x 112": of("torch.nn.functional.avg_pool2d(x, 2)", 16, 64, 112, 112),
}


class Line(NamedTuple):
    """What the grades of a band or kernel say: times of the reference in ms, errors and widths relative to 1."""

    reference_ms: float
    grades: int
    quoted: int
    error: float | None
    width: float | None
    holding: int
    intervals: int


def line_of(cards: list[Scorecard]) -> Line:
    """Return what the timed cards say together."""
    timings = [card.timing for card in cards if card.timing is not None]
    errors = [abs(each.reference_median_ms / each.submission_median_ms - 1) for each in timings]
    quoted = [each for each in timings if each.speedup is not None]
    bounds = [(each.speedup_low, each.speedup_high) for each in timings]
    intervals = [(low, high) for low, high in bounds if low is not None and high is not None]
    widths = [high - low for low, high in intervals]
    return Line(
        statistics.median(each.reference_median_ms for each in timings),
        len(cards),
        len(quoted),
        statistics.median(errors) if errors else None,
        statistics.median(widths) if widths else None,
        sum(low <= 1 <= high for low, high in intervals),
        len(intervals),
    )


def table(cards: list[Scorecard]) -> str:
    """Return bands and kernels in Markdown, and the verdicts other than `correct`."""
    timed = [card for card in cards if card.timing is not None]
    by_kernel: dict[str, list[Scorecard]] = {}
    for card in timed:
        by_kernel.setdefault(card.problem.name, []).append(card)
    kernels = sorted(((line_of(own), name) for name, own in by_kernel.items()), key=lambda each: each[0].reference_ms)
    lowest_ms = [*BANDS_MS.values(), float("inf")]
    bands = []
    for number, name in enumerate(BANDS_MS):
        own = [
            card
            for found, title in kernels
            if lowest_ms[number] <= found.reference_ms < lowest_ms[number + 1]
            for card in by_kernel[title]
        ]
        bands += [(line_of(own), f"**{name}**")] if own else []
    bands += [(line_of(timed), "**all**")] if timed else []
    text = [
        "| kernel | reference, us | grades | with a speedup | median error | median width | intervals that hold 1 |"
    ]
    text.append("|---|---|---|---|---|---|---|")
    for found, name in [*bands, *kernels]:
        error, width = ("" if each is None else f"{each:.2%}" for each in (found.error, found.width))
        text.append(
            f"| {name} | {found.reference_ms * 1e3:.2f} | {found.grades} | {found.quoted} | {error} | {width} "
            f"| {found.holding} of {found.intervals} |"
        )
    text += ["", *(_verdict(card) for card in cards if card.status is not Status.CORRECT)]
    return "\n".join(text).rstrip() + "\n"


def _verdict(card: Scorecard) -> str:
    return f"- {card.problem.name}: {card.status.value} {'' if card.reason is None else card.reason.message}"


def make(folder: Path, parts: list[str] | None, rounds: int) -> None:
    """Write the problems and the list of submissions; with `parts`, of kernels with one of these in their names.

    The number of a kernel is its place in the whole list: cards of another choice of kernels keep their names.
    """
    problems = folder / "problems" / "level1"
    problems.mkdir(parents=True, exist_ok=True)
    with (folder / "submissions.jsonl").open("w", encoding="utf-8") as lines:
        for number, (name, kernel) in enumerate((KERNELS | MORE).items()):
            if parts and not any(part in name for part in parts):
                continue
            place = problems / f"{number}_{re.sub('[^a-z0-9]+', '_', name.lower())}.py"
            place.write_text(source_of(kernel))
            for each in range(rounds):  # Equal texts would be graded once.
                source = f"{AS_SUBMISSION}# round {each}\n"
                lines.write(
                    json.dumps({"problem": f"level1/{place.stem}", "sample": f"round_{each}", "source": source}) + "\n"
                )


def main() -> int:
    """Grade, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder for problems, run and table")
    parser.add_argument("--device", choices=[each.value for each in DeviceKind], default="cuda")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", help="parts of names")
    options = parser.parse_args()
    make(options.folder, options.only, options.rounds)
    run = options.folder / "run"
    command = [sys.executable, str(_TOP / "cli.py"), "batch", str(options.folder / "submissions.jsonl")]
    command += ["--run", str(run), "--problems", str(options.folder / "problems"), "--device", options.device]
    done = subprocess.run([*command, "--size", "full", "--values", "own"], check=False)
    cards = [read_card(path) for path in sorted((run / "cards").rglob("*.json"))]
    text = table(cards)
    (options.folder / "table.md").write_text(text)
    print(text)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
