"""Put together what a grade is asked for: what the user says, else what the replayed card says, else the defaults."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from evaluator.catalog import find_listed, find_problem
from evaluator.devices.gpu import choose
from evaluator.doctor import default_device
from evaluator.errors import CardError, ProblemNotFound, UsageError
from evaluator.files.file_names import card_place
from evaluator.files.store import read_card
from evaluator.findings import Code, finding
from evaluator.grade_options import GradeOptions, given, read_options
from evaluator.grading.request import GradeRequest, Unread
from evaluator.grading.resources import threads
from evaluator.judge.terms import Terms
from evaluator.records import DeviceKind, Finding, Problem, Scorecard, SizeName, WeightsRule
from evaluator.report.text import one_line
from evaluator.sizes.small import found_small, with_small_size
from evaluator.submission.host_code import is_for_the_cpu
from evaluator.submission.read import MAX_CODE_BYTES, STDIN, Submission, read_submission


class Choice(NamedTuple):
    """A device, and what is to be said of why."""

    device: DeviceKind
    remarks: tuple[Finding, ...] = ()


class Resolved(NamedTuple):
    """Options with their device, and the findings on how that was chosen."""

    options: GradeOptions
    remarks: tuple[Finding, ...] = ()


class GradeArguments(NamedTuple):
    """What the command line says of one grade beside its options; None leaves it to the card that is replayed."""

    problem: str | None = None
    submission: str | None = None
    name: str | None = None
    replay: Path | None = None
    changed_problem: bool = False


def request_for(arguments: GradeArguments, named: Mapping[str, Any]) -> GradeRequest:
    """Read everything that the arguments and the options name; what they leave open is as on the card replayed.

    Raises:
        UsageError: something is missing, cannot be read, or cannot be done by this version.
    """
    card = read_card(arguments.replay) if arguments.replay is not None else None
    if card is None and (arguments.problem is None or arguments.submission is None):
        raise UsageError("PROBLEM and SUBMISSION must be named, unless --replay names a scorecard")
    named = {**_options_of(card), **given(named)}
    found = _problem(arguments, named.get("problems"), card)
    submission = _named(_submission(arguments.submission, card), arguments.name)
    options, remarks = options_for(named, submission)
    found = with_small_size(found, options.actual_size)
    gpu = choose(options.gpu) if options.device is DeviceKind.CUDA else None
    return GradeRequest(
        submission=remarked(submission, (*remarks, *about_size(found, options.actual_size))),
        terms=Terms(found, options, gpu, threads()),
        replay=card,
    )


def options_for(named: Mapping[str, Any], submission: Submission | Unread | None = None) -> Resolved:
    """Read options by name; where no device is named, it is the one that suits the submission, else this machine's.

    Raises:
        TypeError: an option has a name that is not known.
        UsageError: an option has a value that is not known, or that contradicts another option.
    """
    if "device" in given(named):
        return Resolved(read_options(named))
    alone = submission is not None and named.get("gpu") is None
    device, remarks = device_for(submission) if alone else Choice(default_device())
    return Resolved(read_options({**named, "device": device}), remarks)


def _options_of(card: Scorecard | None) -> dict[str, Any]:
    """Return the options of the grade that `card` is of. In a card that says nothing of weights they stayed."""
    if card is None:
        return {}
    frozen = WeightsRule.FROZEN if card.checks else None
    return {
        "device": card.device.kind,
        "size": card.problem.size,
        "tolerance": card.tolerance,
        "require_own_kernel": card.required_own_kernel,
        "weights": frozen if card.weights is None else card.weights.rule,
    }


def about_size(problem: Problem, size: SizeName) -> tuple[Finding, ...]:
    """Say of a small size that was found which constants it has."""
    said = found_small(problem, size)
    return () if said is None else (finding(Code.SIZE_FOUND, f"small size of {problem.name}: {said}"),)


def remarked(submission: Submission | Unread, remarks: tuple[Finding, ...]) -> Submission | Unread:
    """Add findings to those of a submission's text."""
    if not remarks or not isinstance(submission, Submission):
        return submission
    return replace(submission, findings=(*submission.findings, *remarks))


def _problem(arguments: GradeArguments, folder: Path | None, card: Scorecard | None) -> Problem:
    """Read the problem: the one that the user names, else the one whose name the replayed card has in the listing.

    A card is data: what it says is never taken for a path. Raises UsageError where the problem is not the card's own.
    """
    if arguments.problem is not None:
        problem = find_problem(arguments.problem, folder)
    elif card is not None:
        problem = _problem_of(card, folder)
    else:
        raise UsageError("PROBLEM must be named, unless --replay names a scorecard")
    if card is not None and problem.sha256 != card.problem.sha256 and not arguments.changed_problem:
        raise UsageError(
            f"the problem {problem.name} is not the one of this scorecard: its sha256 is {problem.sha256[:12]}…, "
            f"the card's {card.problem.sha256[:12]}…",
            hint="--changed-problem replays it all the same; name PROBLEM where it is another one",
        )
    return problem


def _problem_of(card: Scorecard, folder: Path | None) -> Problem:
    try:
        return find_listed(card.problem.name, folder)
    except ProblemNotFound as error:
        hint = "name it, if you trust it: warpgrade grade PROBLEM --replay CARD; or say where it is: --problems DIR"
        name = one_line(card.problem.name, 80)
        raise UsageError(f"there is no problem {name!r}, which this scorecard names", hint=hint) from error


def default_target(request: GradeRequest) -> Path:
    """Say where a scorecard goes. A replay does not overwrite the card that it is compared with."""
    ending = "replay.json" if request.replay is not None else "json"
    return Path("scorecards", card_place(request.terms.problem.name, request.submission.name, ending))


def device_for(submission: Submission | Unread | None) -> Choice:
    """Choose the device of a grade that asks for none: the CPU for C++ that is for nothing else."""
    usual = default_device()
    if not isinstance(submission, Submission) or not is_for_the_cpu(submission.source):
        return Choice(usual)
    message = f"graded on cpu and not on {usual.value}: it builds C++ for the CPU, and nothing in it is for a GPU"
    return Choice(DeviceKind.CPU, (finding(Code.GRADED_ON_CPU, message),))


def _submission(path: str | None, card: Scorecard | None) -> Submission | Unread:
    """Read the submission at `path`, or take the one that the card holds."""
    if path is None:
        return _submission_of(card)
    place: Path | Literal["-"] = "-" if path == STDIN else Path(path)
    read = read_submission(place)
    if isinstance(read, Submission):
        return read
    name = "stdin" if path == STDIN else os.fsencode(Path(path).stem).decode("utf-8", "replace")
    return Unread(name=name, origin=os.fsencode(path).decode("utf-8", "replace"), finding=read)


def _named(submission: Submission | Unread, name: str | None) -> Submission | Unread:
    """Give it the name that the user wants on its card. Raises UsageError where that could not be a file's."""
    if name is None:
        return submission
    if not name.isprintable() or not name.strip() or "/" in name or name.startswith("."):
        hint = "use letters, digits, - and _: --name softmax_v2"
        raise UsageError(f"{name!r} cannot be the name of a submission", hint=hint)
    return replace(submission, name=name)


def _submission_of(card: Scorecard | None) -> Submission:
    if card is None or card.submission.sha256 is None:
        raise CardError("this scorecard holds no submission to grade again", hint="name SUBMISSION as well")
    graded = card.submission
    text = graded.source.encode()
    if hashlib.sha256(text).hexdigest() != graded.sha256 or len(text) > MAX_CODE_BYTES:
        raise CardError("the submission in this scorecard is not the text that its sha256 is of, or it is too large")
    return Submission(
        name=graded.name,
        origin=graded.origin,
        sha256=graded.sha256,
        source=graded.source,
        extracted_from_answer=graded.extracted_from_answer,
        line_offset=0,
        findings=(),
    )
