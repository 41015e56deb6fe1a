"""Honest arithmetic on every problem: each form of `honest_forms`, judged by the comparison of a grade.

    python -m benchmarks.numerics.orders_table KernelBench --device cuda --size full --seconds 120 --output orders.jsonl

Each form answers a call with the problem's own values, one with cancelling rows, and one with each input distribution
of the problem's grades. A failed form is a defect of the tolerance, or a documented decision. The call with the
problem's own values is also judged by KernelBench's tolerance. Each problem has its own process. A repeated command
continues with the missing problems, and writes orders.md beside the file. With `--precision bf16` or `fp16`, problems
are cast to half precision (`generated_problems.in_precision`), and the forms are the honest ones of `half_precision`.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.numerics.generated_problems import DTYPES, in_precision
from benchmarks.numerics.half_precision import HONEST
from benchmarks.numerics.honest_forms import FORMS, UNSTABLE, by_context
from benchmarks.numerics.judged_answers import (
    Answer,
    AnswerTrials,
    OneCallReference,
    Setup,
    in_children,
    json_lines,
    ratio_of,
    set_up,
    wrong_by_kernelbench,
)
from evaluator.catalog import list_problems
from evaluator.errors import ProblemError
from evaluator.records import CaseName, Precision, Problem, Profile, SizeName

_TIMEOUT_S = 60.0
CANCELLING = "cancelling rows"


def forms_of(precision: Precision) -> Mapping[str, Answer]:
    """Return the honest forms in a precision."""
    return HONEST if precision in DTYPES else {name: by_context(form) for name, form in FORMS.items()}


def tried(problem: Problem, size: CaseName, device: str) -> dict[str, Any]:
    """Return the results of all forms on a problem, at its full size if it has no other."""
    used = size if size in problem.cases else SizeName.FULL
    setup = set_up(problem, used, device, OneCallReference)
    return {"size": used.value, "results": [row for call in _calls(setup) for row in _judged(setup, *call)]}


def _calls(setup: Setup) -> list[tuple[str, int, int]]:
    """Return the calls by name, with index and seed. No row cancels in a call with index 0."""
    mix = setup.distribution_mix
    given = Profile.AS_GIVEN
    calls = [(given.value, 0, mix.seed_for(given))]
    calls += [(CANCELLING, 1, mix.seed_for(given))] if mix.row_sites else []
    return calls + [(profile.value, 1, mix.seed_for(profile)) for profile in mix.use]


def _judged(setup: Setup, values: str, index: int, seed: int) -> list[dict[str, Any]]:
    rows = []
    for name, answer in forms_of(setup.reference.problem.precision).items():
        row: dict[str, Any] = {"form": name, "values": values, "seed": f"{seed:x}"}
        try:
            trial = AnswerTrials(setup, answer).run(index, seed, timeout_s=_TIMEOUT_S)
        except ProblemError as error:  # An operation without support for the mode.
            rows.append({**row, "skipped": error.message[:200]})
            continue
        found = None if trial.fault is None else trial.fault.finding
        row |= {"ratio": float(f"{ratio_of(trial):.3g}"), "code": None if found is None else found.code}
        if index == 0:
            row["kernelbench"] = wrong_by_kernelbench(setup, answer, [seed])
        rows.append(row if found is None else {**row, "finding": found.message[:300]})
    return rows


def table(lines: list[dict[str, Any]]) -> str:
    """Return the summary in Markdown."""
    done = [line for line in lines if "results" in line]
    rows = [(line["name"], row) for line in done for row in line["results"] if "code" in row]
    forms = list(dict.fromkeys(row["form"] for _, row in rows))
    wrong = [(name, row) for name, row in rows if row["code"] is not None]
    bad = {name for name, row in wrong if row["form"] != UNSTABLE}
    right = f"{len(done) - len(bad)} problems have every form correct (`{UNSTABLE}` apart)"
    text = [
        f"{len(done)} problems, {len(forms)} forms, {len(rows)} answers: {right}.",
        "",
        "| form | answers | wrong | problems with a wrong answer | error over allowed | wrong by KernelBench |",
        "|---|---|---|---|---|---|",
    ]
    for form in forms:
        own = [(name, row) for name, row in rows if row["form"] == form]
        missed = [name for name, row in own if row["code"] is not None]
        ratio = max((row["ratio"] for _, row in own), default=0.0)
        by_kernelbench = sum(row.get("kernelbench", 0) for _, row in own)
        text.append(f"| {form} | {len(own)} | {len(missed)} | {len(set(missed))} | {ratio:.3g} | {by_kernelbench} |")
    if wrong:
        text += ["", "| problem | form | values | error over allowed | finding |", "|---|---|---|---|---|"]
        text += [
            f"| {name} | {row['form']} | {row['values']} | {row['ratio']:.3g} | {row['code']}: {row['finding']} |"
            for name, row in wrong
        ]
    skipped = Counter((name, row["skipped"]) for line in done for name, row in _skipped(line))
    missing = [f"- {line['name']}: {line['failure']}" for line in lines if "failure" in line]
    missing += [f"- {name}: {count} answers, {why}" for (name, why), count in skipped.items()]
    text += ["", "Not tried:", "", *missing] if missing else []
    return "\n".join(text) + "\n"


def _skipped(line: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(line["name"], row) for row in line["results"] if "skipped" in row]


def main(arguments: list[str] | None = None) -> int:
    """Try the problems, and return 1 if a form failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="PROBLEMS_FOLDER", help="problems, or a checkout of KernelBench")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--size", choices=[size.value for size in SizeName], default=SizeName.SMALL.value)
    parser.add_argument("--seconds", type=float, default=120.0, help="time limit of one problem")
    parser.add_argument("--gib", type=float, help="limit of one problem's host memory, in GiB; not for cuda")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", nargs="+", help="parts of problem names")
    parser.add_argument("--levels", type=int, nargs="+", help="levels to try; default: all up to 3")
    parser.add_argument("--precision", choices=[precision.value for precision in DTYPES], help="cast the problems")
    parser.add_argument("--output", type=Path, required=True, help="file of JSON lines")
    options = parser.parse_args(arguments)
    levels = options.levels or range(4)
    problems = [
        problem
        for problem in list_problems(options.folder).problems
        if problem.level in levels and (not options.only or any(part in problem.name for part in options.only))
    ]
    if options.precision is not None:
        problems = [in_precision(problem, Precision(options.precision)) for problem in problems]
    tasks = [(problem.name, (problem, SizeName(options.size), options.device)) for problem in problems]
    in_children(tasks, tried, options.output, jobs=options.jobs, seconds=options.seconds, gib=options.gib)
    text = table(json_lines(options.output))
    options.output.with_suffix(".md").write_text(text)
    print(text)
    return int(any(row.get("code") for line in json_lines(options.output) for row in line.get("results", [])))


if __name__ == "__main__":
    sys.exit(main())
