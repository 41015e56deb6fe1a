"""Honest arithmetic graded many times: how many of N grades refuse an answer that is right.

    python -m benchmarks.numerics.honest_grades --grades 1000 --jobs 2 --output honest_grades.jsonl

The problems are those whose published kernels were refused once: long products, norms, ELU, SELU and softmax. The forms
are those of `honest_forms`. Each grade makes the calls of a grade, checked and timed, in this process, with fresh seeds
for inputs, weights and distributions. A repeated command continues with the missing rows, and writes a .md file beside
the output.
"""

import argparse
import sys
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.numerics.generated_problems import problem_of
from benchmarks.numerics.honest_forms import FORMS, UNSTABLE
from benchmarks.numerics.judged_answers import (
    codes_of,
    counted,
    graded,
    in_children,
    json_lines,
    not_tried,
    refused,
    set_up,
)
from evaluator.judge.reference.call_plan import CallPlan
from evaluator.protocol import model_call
from evaluator.records import SizeName


class Case(NamedTuple):
    """A problem: arguments and expression of its forward, its inputs, and the forms that are graded."""

    arguments: str
    forward: str
    inputs: str
    forms: tuple[str, ...]


_SUMMED = ("term by term", "random order")
_ROWS = "torch.randn({rows}, {terms})"
CASES = {
    "product": Case("a, b", "a @ b", f"{_ROWS}, torch.randn({{terms}}, {{rows}})", ("blocked", "random order")),
    "matrix times vector": Case("a, b", "a @ b", f"{_ROWS}, torch.randn({{terms}}, 1)", ("blocked", "random order")),
    "softmax": Case("x", "torch.softmax(x, 1)", _ROWS, (*_SUMMED, "fast intrinsics")),
    "ELU": Case("x", "torch.nn.functional.elu(x)", _ROWS, ("fast intrinsics",)),
    "SELU": Case("x", "torch.selu(x)", _ROWS, ("fast intrinsics",)),
    "L1 norm": Case("x", "x / x.abs().sum(1, keepdim=True)", _ROWS, _SUMMED),
    "L2 norm": Case("x", "x / x.norm(p=2, dim=1, keepdim=True)", _ROWS, _SUMMED),
    "Frobenius norm": Case("x", "x / x.norm(p='fro')", _ROWS, _SUMMED),
    "instance norm": Case(
        "x", "torch.nn.functional.instance_norm(x)", "torch.randn(2, {rows} // 2, {terms} // 32, 32)", _SUMMED
    ),
}


def tried(case_name: str, form_name: str, rows: int, terms: int, grades: int, device: str) -> dict[str, Any]:
    """Return the verdicts of `grades` grades of a form, and the largest error over the allowed one of each."""
    case, form = CASES[case_name], FORMS[form_name]
    problem = problem_of(case.arguments, case.forward, case.inputs, rows=rows, terms=terms)
    setup = set_up(problem, SizeName.FULL, device)

    def answer(plan: CallPlan) -> model_call.Result:
        return plan.reference.altered(plan.inputs, plan.random_seed, plan.gradients, form())

    verdicts = [graded(setup, answer) for _ in range(grades)]
    ratios = sorted(each.ratio for each in verdicts)
    return {
        "problem": case_name,
        "form": form_name,
        "terms": terms,
        **counted(verdicts),
        "median": float(f"{ratios[len(ratios) // 2]:.3g}"),
        "largest": float(f"{ratios[-1]:.3g}"),
    }


def table(lines: list[dict[str, Any]]) -> str:
    """Return the table in Markdown."""
    done = [line for line in lines if "grades" in line]
    text = [
        f"{sum(map(refused, done))} of {sum(line['grades'] for line in done)} grades are refused.",
        "",
        "| problem | form | terms | refused | codes | error over allowed, median | largest |",
        "|---|---|---|---|---|---|---|",
    ]
    text += [
        f"| {line['problem']} | {line['form']} | {line['terms']} | {refused(line)} of {line['grades']} "
        f"| {codes_of(line)} | {line['median']:.3g} | {line['largest']:.3g} |"
        for line in done
    ]
    return "\n".join([*text, *not_tried(lines)]) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Grade the forms, print the table, and return 1 if a grade is refused or a row has none."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--terms", type=int, default=1024, help="terms of each sum; a multiple of 32")
    parser.add_argument("--grades", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=3600.0, help="time limit of one row")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--problems", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--forms", nargs="+", choices=[form for form in FORMS if form != UNSTABLE])
    parser.add_argument("--output", type=Path, required=True, help="file of JSON lines")
    options = parser.parse_args(arguments)
    tasks = [
        (f"{case}, {form}, {options.terms}", (case, form, options.rows, options.terms, options.grades, options.device))
        for case in options.problems
        for form in options.forms or CASES[case].forms
    ]
    in_children(tasks, tried, options.output, jobs=options.jobs, seconds=options.seconds)
    lines = json_lines(options.output)
    text = table(lines)
    options.output.with_suffix(".md").write_text(text)
    print(text)
    return int(any("failure" in line or refused(line) for line in lines))


if __name__ == "__main__":
    sys.exit(main())
