"""Problems as text: a list, or a problem with sizes and reference."""

import textwrap

from evaluator.catalog import WHAT_COUNTS, Listing
from evaluator.records import Case, CheckRule, Formats, Problem
from evaluator.text import one_line, printable

_WIDTH = 80


def listing_text(listing: Listing) -> str:
    """Return one line for each readable problem, by level."""
    if not listing.problems:
        return f"no problems here: {WHAT_COUNTS}\n"
    width = max(len(problem.name) for problem in listing.problems)
    lines = [
        f"{problem.level:<5}  {problem.name:<{width}}  {one_line(problem.title, 60)}" for problem in listing.problems
    ]
    return "\n".join([f"level  {'name':<{width}}  title", *lines]) + "\n"


def listing_document(listing: Listing) -> dict[str, list[dict[str, str | int]] | list[str]]:
    """Return the list as a document, including the errors of unreadable problems."""
    fields = ("name", "title", "level", "origin", "sha256")
    problems = [{field: getattr(problem, field) for field in fields} for problem in listing.problems]
    return {"problems": problems, "broken": [error.message for error in listing.broken]}


def problem_text(problem: Problem, work: str = "") -> str:
    """Return a problem's task, cases, the text about its work if given, and its reference."""
    graded = "forward and gradients" if problem.backward else "forward"
    if problem.check is not None:
        instead = " of" if problem.check is CheckRule.INSTEAD else ""
        graded += f"; check(inputs, outputs) {problem.check.value}{instead} the comparison"
    width = max((len(name) for name in problem.cases), default=0)
    cases = [f"  {name:<{width}} {_case_text(case)}".rstrip() for name, case in problem.cases.items()]
    paragraphs = [
        f"{problem.name}: {one_line(problem.title, 100)}",
        f"level {problem.level}, {problem.precision.value}, {problem.mode.value} mode, {graded}\n{problem.path}",
        "\n".join(_wrapped(line) for line in printable(problem.description).split("\n")),
        "cases\n" + "\n".join(cases),
        _formats_text(problem.formats),
        work,
        printable(problem.source).rstrip(),
    ]
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph) + "\n"


def _case_text(case: Case) -> str:
    """Return the axes of a case, its weight unless 1, and its origin."""
    axes = ", ".join(f"{name} = {value!r}" for name, value in case.axes.items())
    weight = "" if case.weight == 1 else f"; weight {case.weight:g}"
    return f"{axes}{weight}{f'; {one_line(case.origin, 80)}' if case.origin else ''}"


def _formats_text(formats: Formats) -> str:
    """Return the declared formats of inputs and outputs; empty without any."""
    lines = [f"  {name:<10} {form.value}" for name, form in formats.inputs.items()]
    for path, output in formats.outputs.items():
        if output.format is None:
            lines.append(f"  {path:<10} {output.flips:g} of the elements may be on the other side of a step")
            continue
        scales = "" if output.scales is None else f", scales of its blocks in {output.scales}"
        lines.append(f"  {path:<10} {output.format.value}{scales}; right within a step of the format")
    return "\n".join(["formats", *lines]) if lines else ""


def _wrapped(line: str) -> str:
    """Return a line of prose in lines of at most 80 characters. Words stay whole."""
    return textwrap.fill(line, _WIDTH, break_long_words=False, break_on_hyphens=False)
