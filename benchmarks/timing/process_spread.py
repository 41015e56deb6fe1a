"""Spread of a median time between processes of one program, from the cards of `itself_table`.

    python -m benchmarks.timing.process_spread FOLDER [FOLDER ...]

Each grade of a reference against itself has a fresh process of the submission, so n rounds are n processes of one
kernel, which are all measured alike. Printed are

- the constants of `evaluator/timing/stats.py` by maximum likelihood. A kernel's variance over its processes,
  divided by the expected one, follows an F distribution: kernels differ (G. K. Smyth, Linear Models and Empirical Bayes
  Methods, Statistical Applications in Genetics and Molecular Biology 3, 2004, section 6). Expected is the square of the
  spread, plus that of the error of each median;
- how many intervals hold 1 with one of these processes as the submission and two others as the reference. All choices
  of three are taken, so the cases depend on each other.
"""

import argparse
import itertools
import math
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from benchmarks.timing.itself_table import BANDS_MS
from evaluator.files.card_files import read_card
from evaluator.records import ClockKind, Samples, Scorecard
from evaluator.timing.quote import quote
from evaluator.timing.stats import median, median_error

_NORMAL_95 = 1.96
_FARTHEST = 1.92
"""Half the 95 % quantile of a chi-squared distribution with one degree of freedom."""
_LEAST_VARIANCE = 1e-12
"""For equal medians, in us^2: no spread has a likelihood for a variance of 0."""
_CONSTANTS_US = [0.005 * number for number in range(4, 41)]
_PARTS = [0.0001 * number for number in range(31)] + [0.004, 0.005]
_FREEDOMS = (4, 8, 15, 30, 60)


class Processes(NamedTuple):
    """Medians of a kernel's processes: their median, variance and degrees of freedom, and the variance by scatter."""

    time_us: float
    variance: float
    freedom: int
    by_scatter: float


class Spread(NamedTuple):
    """The spread's constants, and the degrees of freedom of the kernels' own variances."""

    constant_us: float
    part: float
    freedom: float


def in_windows(cards: Iterable[Scorecard]) -> dict[str, list[Samples]]:
    """Return the submissions' sides with windows by problem, also where the windows are not quoted (T318)."""
    found: dict[str, list[Samples]] = {}
    for card in cards:
        side = None if card.timing is None else card.timing.submission
        if side is not None and side.windows is not None:
            windows = replace(side.windows, shared_work=False)
            times_ms = windows.call_ms
            found.setdefault(card.problem.name, []).append(
                replace(side, windows=windows, samples_ms=times_ms, median_ms=median(times_ms))
            )
    return {name: sides for name, sides in found.items() if len(sides) > 1}


def processes_of(sides: Sequence[Samples]) -> Processes:
    """Return what the sides of one kernel say, each a process."""
    medians_us = [side.median_ms * 1e3 for side in sides]
    errors_us = [median_error(side.samples_ms) * 1e3 / _NORMAL_95 for side in sides]
    by_scatter = statistics.mean(error * error for error in errors_us)
    return Processes(statistics.median(medians_us), statistics.variance(medians_us), len(sides) - 1, by_scatter)


def likelihood(kernels: Iterable[Processes], spread: Spread) -> float:
    """Return the logarithm of the likelihood of the kernels' variances."""
    prior = spread.freedom
    total = 0.0
    for time_us, variance, freedom, by_scatter in kernels:
        expected = spread.constant_us**2 + (spread.part * time_us) ** 2 + by_scatter
        ratio = max(variance, _LEAST_VARIANCE) / expected
        total += math.lgamma((freedom + prior) / 2) - math.lgamma(freedom / 2) - math.lgamma(prior / 2)
        total += freedom / 2 * math.log(freedom / prior) + (freedom / 2 - 1) * math.log(ratio)
        total -= (freedom + prior) / 2 * math.log1p(freedom * ratio / prior) + math.log(expected)
    return total


def estimate(kernels: Sequence[Processes]) -> Spread:
    """Return the likeliest spread of a grid."""
    grid = map(Spread._make, itertools.product(_CONSTANTS_US, _PARTS, _FREEDOMS))
    return max(grid, key=lambda spread: likelihood(kernels, spread))


def likely(kernels: Sequence[Processes], best: Spread) -> tuple[list[float], list[float]]:
    """Return the constants and the parts whose likelihood, at its largest over the rest, is not too far from the best.

    Twice the logarithm of the ratio has a chi-squared distribution with one degree of freedom (S. S. Wilks, 1938).
    """
    least = likelihood(kernels, best) - _FARTHEST
    grid = map(Spread._make, itertools.product(_CONSTANTS_US, _PARTS, _FREEDOMS))
    found = [spread for spread in grid if likelihood(kernels, spread) >= least]
    return sorted({spread.constant_us for spread in found}), sorted({spread.part for spread in found})


def against_others(sides: Sequence[Samples]) -> Iterator[tuple[bool, float, bool]]:
    """Yield of each side beside each pair of others whether its interval holds 1, the width, and if it is quoted."""
    for number, side in enumerate(sides):
        others = [*sides[:number], *sides[number + 1 :]]
        for before, after in itertools.combinations(others, 2):
            timing = quote(ClockKind.SEALED, before, side, after).timing
            low, high = timing.speedup_low, timing.speedup_high
            if low is not None and high is not None:
                yield low <= 1 <= high, high - low, timing.speedup is not None


def table(kernels: dict[str, list[Samples]]) -> str:
    """Return the bands in Markdown."""
    heads = (
        "a call",
        "kernels",
        "spread, us",
        "error by scatter, us",
        "intervals that hold 1",
        "median width",
        "quoted",
    )
    text = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    ends_ms = [*BANDS_MS.values(), math.inf]
    for name, (low_ms, high_ms) in zip(BANDS_MS, itertools.pairwise(ends_ms), strict=True):
        own = [each for each in kernels.values() if low_ms * 1e3 <= processes_of(each).time_us < high_ms * 1e3]
        if not own:
            continue
        found = [processes_of(each) for each in own]
        scatter = statistics.mean(each.by_scatter for each in found)
        spread_us = math.sqrt(max(statistics.mean(each.variance for each in found) - scatter, 0.0))
        cases = [case for sides in own for case in against_others(sides)]
        holding, quoted = sum(case[0] for case in cases), sum(case[2] for case in cases)
        width = statistics.median(case[1] for case in cases)
        text.append(
            f"| {name} | {len(own)} | {spread_us:.3f} | {math.sqrt(scatter):.3f} | {holding} of {len(cases)} "
            f"| {width:.2%} | {quoted / len(cases):.0%} |"
        )
    return "\n".join(text) + "\n"


def main() -> int:
    """Print the estimate and the bands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", help="folders of itself_table")
    options = parser.parse_args()
    kernels: dict[str, list[Samples]] = {}
    for folder in options.folders:
        # Other sessions have another GPU or state of it: each kernel's variance is within one.
        for name, sides in in_windows(
            read_card(path) for path in sorted((folder / "run/cards").rglob("*.json"))
        ).items():
            kernels[f"{folder} {name}"] = sides
    found = [processes_of(sides) for sides in kernels.values()]
    best = estimate(found)
    print(
        f"{best.constant_us:.4f} us and {best.part:.2%} of the time, kernels with {best.freedom:g} degrees of freedom"
    )
    constants_us, parts = likely(found, best)
    print(f"95 % confidence: {constants_us[0]:.4f} to {constants_us[-1]:.4f} us, {parts[0]:.2%} to {parts[-1]:.2%}")
    print(table(kernels))
    return 0


if __name__ == "__main__":
    sys.exit(main())
