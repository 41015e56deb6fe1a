"""Say which share of the work is their own in every shipped solution, and in the honest submissions of tests/honest.

    python -m benchmarks.verdicts.own_shares --device emulated [--require 0.5] [--only NAME ...] [--output FILE.json]

Each is built and checked at its problem's small size in this process, as a grade with `--require-own-kernel` does, and
is not timed. The table has the share by counts alone beside the share that the verdict goes by: what an answer needs
(docs/own_kernels.md) may only lower the first. One that is refused for what its answer needs, and not for its counts,
is a false alarm, and the exit status is 1. Behind the counts (own:library) is what an answer was without own kernels,
and without the library.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from benchmarks.verdicts.false_alarms import Honest, submissions
from evaluator.catalog import find_problem
from evaluator.grade_options import GradeOptions
from evaluator.judge import stages
from evaluator.judge.context.grade_context import GradeContext
from evaluator.judge.exhibits.ablation import AblationResults
from evaluator.judge.exhibits.own_kernels import not_known, own_kernels, too_little
from evaluator.judge.setup.grade_terms import GradeTerms
from evaluator.judge.setup.seed_book import SeedBook
from evaluator.records import DeviceKind, OwnKernels, SizeName, Status

TOP = Path(__file__).resolve().parents[2]

_CALL_TIMEOUT_S = 120.0
_BUILD_TIMEOUT_S = 1200.0


class Row(NamedTuple):
    """A submission's share: by counts alone, and with what its answer needs."""

    problem: str
    name: str
    counted: str
    basis: str
    share: str
    verdict: str
    wall_s: float
    false_alarm: bool


def rows(honest: Iterable[Honest], device: DeviceKind, required: float) -> Iterator[Row]:
    """Grade one after the other; those of a problem share its context."""
    context: GradeContext | None = None
    try:
        for each in honest:
            terms, source = _terms(each.problem, device, required), each.path.read_text(encoding="utf-8")
            if context is None or context.terms != terms:
                if context is not None:
                    context.__exit__(None, None, None)
                context = GradeContext(terms, source, SeedBook(None)).__enter__()
            else:
                context.turn_to(source, SeedBook(None, weight=context.seeds.weight))
            yield _row(context, each, required)
    finally:
        if context is not None:
            context.__exit__(None, None, None)


def _terms(problem: str, device: DeviceKind, required: float) -> GradeTerms:
    own = TOP / "tests" / "honest" / "problems" / problem
    return GradeTerms(
        find_problem(str(own) if own.is_dir() else problem),
        GradeOptions(
            device=device,
            size=SizeName.SMALL,
            timeout_s=_CALL_TIMEOUT_S,
            build_timeout_s=_BUILD_TIMEOUT_S,
            require_own_kernel=required,
        ),
        None,
        threads=1,
    )


def _row(context: GradeContext, each: Honest, required: float) -> Row:
    began = time.monotonic()
    built = stages.build(context)
    if built.fault is not None:
        took_s = time.monotonic() - began
        verdict = _said(built.fault.status, built.fault.finding.message)
        return Row(each.problem, each.path.stem, "", "", "", verdict, took_s, false_alarm=True)
    with ExitStack() as ends:
        checked = stages.check(context, built.build, ends)
    evidence = checked.evidence
    if checked.fault is None:
        evidence = stages.own_kernel_evidence(context, evidence)
    own = own_kernels(evidence)
    counted = own_kernels(evidence._replace(needs=AblationResults()))
    fault = checked.fault or too_little(own, required) or not_known(own, required)
    verdict = Status.CORRECT.value if fault is None else _said(fault.status, fault.finding.message)
    # One with too few kernels of its own is refused for that, and rightly.
    alarm = checked.fault is not None or too_little(own, required) != too_little(counted, required)
    took_s = time.monotonic() - began
    return Row(each.problem, each.path.stem, _share(counted), own.basis.value, _share(own), verdict, took_s, alarm)


def _share(own: OwnKernels) -> str:
    low, high = f"{own.share_low:.2f}", f"{own.share_high:.2f}"
    needs = {None: "-", True: "right", False: "wrong"}
    left_out = f"{needs[own.right_without_kernels]}/{needs[own.right_without_library]}"
    share = low if low == high else f"{low}..{high}"
    numbers = "" if own.own is None or own.library is None else f"{own.own:g}:{own.library:g}, "
    return f"{share} ({numbers}{left_out})"


def _said(status: Status, message: str) -> str:
    return f"{status.value}: {message}"


def main() -> int:
    """Print a line for each, and say how many are false alarms."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "emulated"], default="emulated")
    parser.add_argument("--require", type=float, default=0.5, help="the share that is asked for (default: %(default)s)")
    parser.add_argument("--only", nargs="+", help="the problems or submissions to grade, by name")
    parser.add_argument("--output", type=Path, help="the JSON file to write")
    options = parser.parse_args()
    wanted = None if options.only is None else set(options.only)
    listed = submissions(options.device)
    honest = sorted(each for each in listed if wanted is None or wanted & {each.problem, each.path.stem})
    found: list[Row] = []
    print(f"{'problem':22} {'name':32} {'by counts alone':32} {'basis':10} {'share':32} verdict")
    for row in rows(honest, DeviceKind(options.device), options.require):
        found.append(row)
        print(
            f"{row.problem:22} {row.name:32} {row.counted:32} {row.basis:10} {row.share:32} {row.verdict}"
            f"  [{row.wall_s:.0f} s]",
            flush=True,
        )
        if options.output is not None:
            options.output.write_text(json.dumps([each._asdict() for each in found], indent=1))
    alarms = sum(row.false_alarm for row in found)
    print(f"{options.device}: {len(found)} of {len(honest)} graded, {alarms} false alarms")
    return 0 if len(found) == len(honest) and not alarms else 1


if __name__ == "__main__":
    sys.exit(main())
