"""Honest arithmetic graded many times: how many of N grades refuse an answer that is right.

    python -m benchmarks.numerics.honest_grades --grades 1000 --jobs 2 --output honest_grades.jsonl
    python -m benchmarks.numerics.honest_grades --precision bf16 --grades 20 --jobs 2 --output honest_in_bf16.jsonl

The problems are those whose published kernels were refused once: long products, norms, ELU, SELU and softmax. The forms
are those of `honest_forms`. With `--precision`, problems and forms are those of `half_precision`. Each grade makes the
calls of a grade, checked and timed, in this process, with fresh seeds for inputs, weights and distributions. A repeated
command continues with the missing rows, and writes a .md file beside the output.
"""

import argparse
import sys
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.numerics.generated_problems import problem_of
from benchmarks.numerics.half_precision import HONEST, PROBLEMS, set_up_half
from benchmarks.numerics.honest_forms import FORMS, UNSTABLE, by_context
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
from evaluator.records import Precision, SizeName


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


def tried(
    case_name: str,
    form_name: str,
    rows: int,
    terms: int,
    grades: int,
    device: str,
    precision: Precision = Precision.FP32,
) -> dict[str, Any]:
    """Return the verdicts of `grades` grades of a form, and the largest error over the allowed one of each."""
    if precision is Precision.FP32:
        case, answer = CASES[case_name], by_context(FORMS[form_name])
        problem = problem_of(case.arguments, case.forward, case.inputs, rows=rows, terms=terms)
        setup = set_up(problem, SizeName.FULL, device)
    else:
        setup, answer = set_up_half(case_name, precision, rows, terms, device), HONEST[form_name]
    verdicts = [graded(setup, answer) for _ in range(grades)]
    ratios = sorted(each.ratio for each in verdicts)
    return {
        "problem": case_name,
        "form": form_name,
        "terms": terms,
        "precision": precision.value,
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
        "| problem | form | precision | terms | refused | codes | error over allowed, median | largest |",
        "|---|---|---|---|---|---|---|---|",
    ]
    text += [
        f"| {line['problem']} | {line['form']} | {line['precision']} | {line['terms']} "
        f"| {refused(line)} of {line['grades']} | {codes_of(line)} | {line['median']:.3g} | {line['largest']:.3g} |"
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
    parser.add_argument("--precision", choices=("fp32", "bf16", "fp16"), default="fp32")
    parser.add_argument("--problems", nargs="+", choices=sorted({*CASES, *PROBLEMS}), help="default: all")
    parser.add_argument("--forms", nargs="+", choices=[form for form in {**FORMS, **HONEST} if form != UNSTABLE])
    parser.add_argument("--output", type=Path, required=True, help="file of JSON lines")
    options = parser.parse_args(arguments)
    precision = Precision(options.precision)
    half = {} if precision is Precision.FP32 else dict.fromkeys(PROBLEMS, tuple(HONEST))
    forms = half or {name: case.forms for name, case in CASES.items()}
    tasks = [
        (
            f"{case}, {form}, {options.terms}, {precision.value}",
            (case, form, options.rows, options.terms, options.grades, options.device, precision),
        )
        for case in forms
        if not options.problems or case in options.problems
        for form in options.forms or forms[case]
    ]
    in_children(tasks, tried, options.output, jobs=options.jobs, seconds=options.seconds)
    lines = json_lines(options.output)
    text = table(lines)
    options.output.with_suffix(".md").write_text(text)
    print(text)
    return int(any("failure" in line or refused(line) for line in lines))


if __name__ == "__main__":
    sys.exit(main())
