"""Problems as text: lists, and the results of `problems validate`."""

import textwrap

from evaluator.catalog import WHAT_COUNTS, Listing
from evaluator.records import Admission, Case, CheckRule, ControlResult, Formats, Problem
from evaluator.text import counted, one_line, printable

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
    axes = ", ".join(f"{name} = {value!r}" for name, value in case.axes.items())
    weight = "" if case.weight == 1 else f"; weight {case.weight:g}"
    return f"{axes}{weight}{f'; {one_line(case.origin, 80)}' if case.origin else ''}"


def _formats_text(formats: Formats) -> str:
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


_NAME_WIDTH = 22
_MOST_WEIGHTS = 3


def admission_text(admission: Admission) -> str:
    """Return one line for an admitted problem, and the reasons for a weak one."""
    profile_count = counted(len(admission.profiles), "profile")
    line = f"{admission.problem:<{_NAME_WIDTH}}  "
    if admission.admitted:
        return f"{line}ok    all {len(admission.controls)} bad submissions caught, with {profile_count}\n"
    accepted = [control for control in admission.controls if control.gets_away]
    faults = [f"{len(accepted)} of {len(admission.controls)} bad submissions pass"] if accepted else []
    faults += ["honest variants fail"] if admission.honest_failures else []
    listed, omitted = _without_most_weights(accepted)
    lines = [
        f"{line}weak  {', '.join(faults)}, with {profile_count}",
        *(f"  {control.control}: passes every call\n      {control.advice}" for control in listed),
    ]
    lines += [f"  and {omitted} more; --json lists all"] if omitted else []
    lines += [f"  fails: {failure}" for failure in admission.honest_failures]
    if admission.honest_failures:
        lines += ["      widen [tolerance] in problem.toml, or exclude the profile under [profiles], with a reason"]
    return "\n".join(lines) + "\n"


def details_text(admission: Admission) -> str:
    """Return the bad submissions that only other profiles catch, and the unused profiles with reasons."""
    lines = [
        f"  {control.control}: {profiles}" for control in admission.controls if (profiles := _catching_profile(control))
    ]
    lines += [f"  not {profile.value}: {reason}" for profile, reason in admission.left_out.items()]
    others = [name for name in admission.cases if name != admission.size]
    lines += [f"  tested at {admission.size}; the other cases: {', '.join(others)}"] if others else []
    return "".join(f"{line}\n" for line in lines)


def _catching_profile(result: ControlResult) -> str:
    if result.caught_by_rounding:
        return "within the tolerance, but its rounding errors reveal it"
    return f"passes on as_given, fails on {result.caught_on.value}" if result.caught_on and result.passes_on else ""


def _without_most_weights(accepted: list[ControlResult]) -> tuple[list[ControlResult], int]:
    """Keep the first few of the weights: a network has hundreds, all with the same advice."""
    weights = [control for control in accepted if control.control.startswith("ignores weight ")]
    others = [control for control in accepted if control not in weights]
    return [*others, *weights[:_MOST_WEIGHTS]], max(len(weights) - _MOST_WEIGHTS, 0)
