"""Low precision in place of fp32 or of half precision: how many of N grades refuse each form, at three sizes.

    python -m benchmarks.numerics.low_precision_table --device cuda --size full --grades 50 --output low_precision.jsonl
    python -m benchmarks.numerics.low_precision_table --precision bf16 --grades 5 --terms 1024 --output low_bf16.jsonl

Each grade makes the calls of a grade, checked and timed, with fresh seeds, in this process. A row of the table is a
form of `low_precision_forms` on a problem of positive inputs. `of fp32` is the root mean square of the error of the
form, unguarded, on inputs of both signs, over that of fp32 with one accumulator: below about 1, a form is as accurate
as honest fp32. With `--precision`, problems and wrong forms are those of `half_precision`, and `of fp32` is the error
over that of the exact result, rounded once. `by KernelBench` counts calls with the problem's own values beyond
KernelBench's tolerance. A repeated command continues with the missing rows, and writes a .md file beside the output.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.numerics.generated_problems import problem_of
from benchmarks.numerics.half_precision import PROBLEMS, DoesNotApplyError, rounded_once, set_up_half, wrong_forms
from benchmarks.numerics.honest_forms import by_context
from benchmarks.numerics.judged_answers import (
    Answer,
    codes_of,
    counted,
    graded,
    in_children,
    json_lines,
    not_tried,
    refused,
    set_up,
    wrong_by_kernelbench,
)
from benchmarks.numerics.low_precision_forms import FUNCTIONS, PRODUCTS, SHIFTED_FUNCTIONS, unguarded
from evaluator.judge.numerics.arithmetic_modes import SummationOrder, in_order
from evaluator.judge.reference.call_plan import CallPlan
from evaluator.judge.reference.reference import Reference
from evaluator.protocol import model_call
from evaluator.records import Precision, Profile, SizeName

_TERMS = {"full": (4096, 16_384, 131_072), "small": (256, 1024, 4096)}
_ROWS = {"full": 256, "small": 32}
_KERNELBENCH_CALLS = 5


class Case(NamedTuple):
    """A problem, the forms of its central operation, and the output of a form on the inputs."""

    arguments: str
    forward: str
    inputs: str
    forms: dict[str, Callable[..., torch.Tensor]]
    answer: Callable[..., torch.Tensor]


def _softmax(form: Callable[..., torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    raised = form(x - x.amax(1, keepdim=True))
    return raised / raised.sum(1, keepdim=True)


CASES = {
    "product": Case("a, b", "a @ b", "torch.rand({rows}, {terms}), torch.rand({terms}, {rows})", PRODUCTS,
                    lambda form, a, b: form(a, b)),
    "row sums of a product": Case("a, b", "(a @ b).sum(1, keepdim=True)",
                                  "torch.rand({rows}, {terms}), torch.rand({terms}, {rows})", PRODUCTS,
                                  lambda form, a, b: form(a, b).sum(1, keepdim=True)),
    "exp": Case("x", "torch.exp(x)", "torch.rand({rows}, {terms})", FUNCTIONS, lambda form, x: form(x)),
    "softmax": Case("x", "torch.softmax(x, 1)", "torch.rand({rows}, {terms})", SHIFTED_FUNCTIONS, _softmax),
}  # fmt: skip


def tried(
    case_name: str, form_name: str, rows: int, terms: int, grades: int, device: str, precision: Precision
) -> dict[str, Any]:
    """Return the verdicts of `grades` grades of a form."""
    if precision is Precision.FP32:
        case = CASES[case_name]
        form = case.forms[form_name]
        problem = problem_of(case.arguments, case.forward, case.inputs, rows=rows, terms=terms)
        setup = set_up(problem, SizeName.FULL, device)
        answer, bare = _answer(case, form), _answer(case, unguarded(form))
        honest = by_context(lambda: in_order(SummationOrder.SEQUENTIAL))
    else:
        setup = set_up_half(case_name, precision, rows, terms, device)
        answer = bare = wrong_forms(precision)[form_name]
        honest = rounded_once
    line = {"problem": case_name, "form": form_name, "terms": terms, "precision": precision.value}
    try:
        verdicts = [graded(setup, answer) for _ in range(grades)]
    except DoesNotApplyError as error:
        return {**line, "skipped": error.message}
    return {
        **line,
        **counted(verdicts),
        "ratio": float(f"{max(each.ratio for each in verdicts):.3g}"),
        "kernelbench": wrong_by_kernelbench(setup, answer, range(_KERNELBENCH_CALLS)),
        "of_fp32": float(f"{_of_honest(setup.reference, bare, honest):.3g}"),
    }


def _answer(case: Case, form: Callable[..., torch.Tensor]) -> Answer:
    def answer(plan: CallPlan) -> model_call.Result:
        with torch.no_grad():
            return model_call.Result(case.answer(form, *plan.inputs.args), None)

    return answer


def _of_honest(reference: Reference, answer: Answer, honest: Answer) -> float:
    """Return the size of a form's error on inputs of both signs, over that of an honest form."""
    plan = CallPlan(reference, 1, profile=Profile.SIGNED_NORMAL)
    exact = reference.expected(plan.inputs, 0, None).exact.outputs
    error, own = (float((form(plan).outputs - exact).square().mean().sqrt()) for form in (answer, honest))
    return error / own if own else float(error > 0)


def table(lines: list[dict[str, Any]]) -> str:
    """Return the table in Markdown."""
    done = [line for line in lines if "grades" in line]
    through = sum(1 for line in done if refused(line) < line["grades"])
    text = [
        f"{len(done)} rows; {len(done) - through} are refused in every grade.",
        "",
        "| problem | form | precision | terms | refused | codes | error over allowed | of fp32 | by KernelBench |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    text += [
        f"| {line['problem']} | {line['form']} | {line['precision']} | {line['terms']} "
        f"| {refused(line)} of {line['grades']} | {codes_of(line)} | {line['ratio']:.3g} | {line['of_fp32']:.3g} "
        f"| {line['kernelbench']} of {_KERNELBENCH_CALLS} |"
        for line in done
    ]
    return "\n".join([*text, *not_tried(lines)]) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Grade the forms, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--size", choices=sorted(_TERMS), default="small")
    parser.add_argument("--grades", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=300.0, help="time limit of one row")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--precision", choices=("fp32", "bf16", "fp16"), default="fp32")
    parser.add_argument("--problems", nargs="+", choices=sorted({*CASES, *PROBLEMS}), help="default: all")
    parser.add_argument("--only", nargs="+", help="parts of names of forms")
    parser.add_argument("--terms", type=int, nargs="+", help="numbers of terms, in place of the size's three")
    parser.add_argument("--output", type=Path, required=True, help="file of JSON lines")
    options = parser.parse_args(arguments)
    precision = Precision(options.precision)
    half = {} if precision is Precision.FP32 else dict.fromkeys(PROBLEMS, wrong_forms(precision))
    forms = half or {name: case.forms for name, case in CASES.items()}
    tasks = [
        (
            f"{case}, {form}, {terms}, {precision.value}",
            (case, form, _ROWS[options.size], terms, options.grades, options.device, precision),
        )
        for case in forms
        if not options.problems or case in options.problems
        for form in forms[case]
        for terms in options.terms or _TERMS[options.size]
        if not options.only or any(part in form for part in options.only)
    ]
    in_children(tasks, tried, options.output, jobs=options.jobs, seconds=options.seconds)
    text = table(json_lines(options.output))
    options.output.with_suffix(".md").write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
