"""Assembly of a grade request: from the user's arguments, else from the replayed card, else from defaults."""

import hashlib
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from evaluator.catalog import find_listed, find_problem
from evaluator.devices.gpu import choose, default_device
from evaluator.errors import CardError, ProblemNotFound, UsageError
from evaluator.files.card_files import card_place, read_card
from evaluator.findings import Code, finding
from evaluator.grade_options import GradeOptions, entry_given, given, read_options
from evaluator.grading.request import GradeRequest, Unread, threads
from evaluator.judge.setup.grade_terms import GradeTerms
from evaluator.paths import data_dir
from evaluator.records import CaseName, DeviceKind, Finding, Problem, Scorecard, WeightsRule
from evaluator.sizes.cases import HIDDEN, sought_sizes
from evaluator.sizes.found_sizes import with_sizes
from evaluator.submission.folder import spelled
from evaluator.submission.read import MAX_CODE_BYTES, STDIN, Submission, read_submission
from evaluator.submission.requirements import is_for_the_cpu
from evaluator.text import one_line


class Resolved(NamedTuple):
    """Options with a device, and findings about the choice of the device."""

    options: GradeOptions
    remarks: tuple[Finding, ...] = ()


class GradeArguments(NamedTuple):
    """Command-line arguments of one grade, without options; None takes the value from the replayed card."""

    problem: str | None = None
    submission: str | None = None
    name: str | None = None
    replay: Path | None = None
    changed_problem: bool = False


def _swapped(arguments: GradeArguments, folder: Path | None) -> UsageError | None:
    """Return the error of a command whose second argument is a problem's name; None if it is none."""
    problem, submission = arguments.problem, arguments.submission
    if problem is None or submission is None:
        return None
    try:
        find_listed(submission, folder)
    except UsageError:
        return None
    hint = shlex.join(["warpgrade", "grade", submission, problem])
    return UsageError(f"the problem comes first, and {submission!r} is one", hint=hint)


def request_for(arguments: GradeArguments, named: Mapping[str, Any]) -> GradeRequest:
    """Read all files named by arguments and options; missing values come from the replayed card.

    Raises:
        UsageError: a value is missing, unreadable or unsupported.
    """
    card = read_card(arguments.replay) if arguments.replay is not None else None
    if card is None and (arguments.problem is None or arguments.submission is None):
        raise _missing(arguments.problem)
    named = {**_options_of(card, given(named)), **given(named)}
    try:
        problem = _problem(arguments, named.get("problems"), card)
    except UsageError as error:
        raise _swapped(arguments, named.get("problems")) or error from None
    submission = _named(_submission(arguments.submission, card, entry_given(named)), arguments.name)
    options, remarks = options_for(named, submission)
    problem = with_sizes(problem, sought_sizes(options.sizes, options.case))
    gpu = choose(options.gpu) if options.device is DeviceKind.CUDA else None
    return GradeRequest(
        submission=remarked(submission, remarks),
        terms=GradeTerms(problem, options, gpu, threads()),
        replay=card,
    )


def _missing(problem: str | None) -> UsageError:
    """Return the error of a command without both arguments."""
    if problem is None:
        hint = "warpgrade grade PROBLEM FILE; `warpgrade problems list` lists the problems"
        return UsageError("PROBLEM and SUBMISSION are missing", hint=hint)
    name = shlex.quote(one_line(problem, 80))
    hint = f"warpgrade grade {name} FILE; `warpgrade new solution {name}` writes a file to start from"
    return UsageError("SUBMISSION is missing", hint=hint)


def options_for(named: Mapping[str, Any], submission: Submission | Unread | None = None) -> Resolved:
    """Parse options by name; without a device, take this machine's default, or the CPU for C++ for the CPU only.

    Raises:
        TypeError: the name of an option is unknown.
        UsageError: the value of an option is unknown, or contradicts another option.
    """
    if "device" in given(named):
        return Resolved(read_options(named))
    usual = default_device()
    if named.get("gpu") is None and isinstance(submission, Submission) and is_for_the_cpu(submission.source):
        message = f"graded on cpu, not on {usual.value}: the submission builds C++ for the CPU and has no GPU code"
        options = read_options({**named, "device": DeviceKind.CPU})
        return Resolved(options, (finding(Code.GRADED_ON_CPU, message),))
    return Resolved(read_options({**named, "device": usual}))


def _options_of(card: Scorecard | None, named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the grade of `card`, to be repeated with the options `named` by the user.

    The cases are the card's, unless the user chooses others. A card without a weights rule is of a grade with frozen
    weights. Only `cuda` has a rule for the L2 cache.
    """
    if card is None:
        return {}
    frozen = WeightsRule.FROZEN if card.checks else None
    on = named.get("device") or card.device.kind
    return {
        "device": card.device.kind,
        "case": () if {"size", "case"}.intersection(named) else _cases_of(card, on),
        "tolerance": card.tolerance,
        "values": card.values,
        "mode": card.mode,
        "entry": card.entry,
        "require_own_kernel": card.required_own_kernel,
        "weights": frozen if card.weights is None else card.weights.rule,
        "l2": card.l2.rule if card.l2 is not None and on == DeviceKind.CUDA else None,
    }


def _cases_of(card: Scorecard, on: str) -> tuple[CaseName, ...]:
    """Return the graded cases of `card`. Only the card's own fits another device.

    Hidden cases of a grade without named cases need no name: a name would time them.
    """
    graded = [case for case in card.cases if case.status is not None or case.code is not None]
    names = tuple(case.name for case in graded if not case.hidden) or card.sizes
    hidden = [case for case in graded if case.hidden]
    if on != card.device.kind or not hidden:
        return names[:1] if on != card.device.kind else names
    sizes = GradeOptions(card.device.kind).sizes
    by_default = names[0] == sizes[0] and set(names) <= set(sizes) and not any(case.is_timed for case in hidden)
    return () if by_default else (*names, HIDDEN)


def remarked(submission: Submission | Unread, remarks: tuple[Finding, ...]) -> Submission | Unread:
    """Return the submission with additional findings about its text."""
    if not remarks or not isinstance(submission, Submission):
        return submission
    return replace(submission, findings=(*submission.findings, *remarks))


def _problem(arguments: GradeArguments, folder: Path | None, card: Scorecard | None) -> Problem:
    """Read the problem named by the user, else the listed problem with the name in the replayed card.

    A card is untrusted data: its problem name is never used as a path. Raises UsageError if the problem differs from
    the card's.
    """
    if arguments.problem is not None:
        problem = find_problem(arguments.problem, folder)
    elif card is not None:
        problem = _problem_of(card, folder)
    else:
        raise UsageError("PROBLEM is required without --replay")
    if not Path(problem.path).is_relative_to(data_dir("problems")):
        # Here, because the sandbox's modules and the look take 40 ms, which a grade of a shipped problem does not need.
        from evaluator.sandbox.visible_files import refuse_readable

        refuse_readable(Path(problem.path), "the problem")
    if card is not None and problem.sha256 != card.problem.sha256 and not arguments.changed_problem:
        raise UsageError(
            f"the problem {problem.name} has changed since this scorecard: its sha256 is {problem.sha256[:12]}…, "
            f"the card's {card.problem.sha256[:12]}…",
            hint="replay anyway with --changed-problem, or name another PROBLEM",
        )
    return problem


def _problem_of(card: Scorecard, folder: Path | None) -> Problem:
    try:
        return find_listed(card.problem.name, folder)
    except ProblemNotFound as error:
        hint = "if you trust the problem, name it: warpgrade grade PROBLEM --replay CARD; or its folder: --problems DIR"
        name = one_line(card.problem.name, 80)
        raise UsageError(f"no problem is named {name!r}, as this scorecard requires", hint=hint) from error


def default_target(request: GradeRequest) -> Path:
    """Return the path of the scorecard. A replay does not overwrite the original card."""
    ending = "replay.json" if request.replay is not None else "json"
    return Path("scorecards", card_place(request.terms.problem.name, request.submission.name, ending))


def _submission(path: str | None, card: Scorecard | None, entry: str | None) -> Submission | Unread:
    """Read the submission at `path`, or take the submission in the card."""
    if path is None:
        return _submission_of(card)
    source: Path | Literal["-"] = "-" if path == STDIN else Path(path)
    read = read_submission(source, entry=entry)
    if isinstance(read, Submission):
        return read
    name = "stdin" if path == STDIN else spelled(Path(path).stem)
    return Unread(name=name, origin=spelled(path), finding=read)


def _named(submission: Submission | Unread, name: str | None) -> Submission | Unread:
    """Return the submission under the user's name for its card. Raises UsageError for an invalid file name."""
    if name is None:
        return submission
    if not name.isprintable() or not name.strip() or "/" in name or name.startswith("."):
        hint = "use letters, digits, - and _: --name softmax_v2"
        raise UsageError(f"{name!r} is not a valid submission name", hint=hint)
    return replace(submission, name=name)


def _submission_of(card: Scorecard | None) -> Submission:
    if card is None or card.submission.sha256 is None:
        raise CardError("this scorecard contains no submission", hint="name SUBMISSION as well")
    graded = card.submission
    text = graded.source.encode()
    if hashlib.sha256(text).hexdigest() != graded.sha256 or len(text) > MAX_CODE_BYTES:
        raise CardError("the submission in this scorecard does not match its sha256, or is too large")
    return Submission(
        name=graded.name,
        origin=graded.origin,
        sha256=graded.sha256,
        source=graded.source,
        extracted_from_answer=graded.extracted_from_answer,
        line_offset=0,
        findings=(),
    )
