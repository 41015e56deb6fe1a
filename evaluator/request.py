"""Put together what a grade is asked for: what the user says, else what the replayed card says, else the defaults."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from msgspec.structs import replace

from evaluator.catalog import find_listed, find_problem
from evaluator.devices.gpu import Gpu, choose
from evaluator.doctor import default_device
from evaluator.errors import CardError, ProblemNotFound, UsageError
from evaluator.files.file_names import card_place
from evaluator.files.store import read_card
from evaluator.findings import Code, finding
from evaluator.grading.request import GradeRequest, Unread
from evaluator.isolation import SandboxMode
from evaluator.records import (
    BaselineKind,
    DeviceKind,
    Finding,
    Problem,
    ProfilerKind,
    Scorecard,
    SizeName,
    ToleranceRule,
    WeightsRule,
)
from evaluator.report.text import one_line
from evaluator.sizes.small import found_small, with_small_size
from evaluator.submission.host_code import is_for_the_cpu
from evaluator.submission.read import MAX_CODE_BYTES, STDIN, Submission, read_submission

AUTO = "auto"


class Choice(NamedTuple):
    """A device, and what is to be said of why."""

    device: DeviceKind
    remarks: tuple[Finding, ...] = ()


class Wish(NamedTuple):
    """What a user says of a grade; None, or `AUTO` as the device, leaves it to the card replayed or to the defaults."""

    problem: str | None
    submission: str | None
    device: str
    gpu: str | None
    size: str | None
    problems: Path | None
    tolerance: str | None
    sandbox: str
    timeout: float | None
    build_timeout: float
    replay: Path | None
    require_own_kernel: float | None = None
    strict: bool = False
    baseline: tuple[str, ...] = ()
    speedup_of: str | None = None
    profile: str | None = None
    name: str | None = None
    deadline: float | None = None
    changed_problem: bool = False
    weights: str | None = None


def request_for(wish: Wish) -> GradeRequest:
    """Read everything that `wish` names.

    Raises:
        UsageError: something is missing, cannot be read, or cannot be done by this version.
    """
    card = read_card(wish.replay) if wish.replay is not None else None
    if card is None and (wish.problem is None or wish.submission is None):
        raise UsageError("PROBLEM and SUBMISSION must be named, unless --replay names a scorecard")
    found = _problem(wish, card)
    submission = _named(_submission(wish.submission, card), wish.name)
    device, remarks = _device(wish.device, wish.gpu, card, submission)
    default_size = SizeName.FULL if device is DeviceKind.CUDA else SizeName.SMALL
    size = SizeName(wish.size or (card.problem.size if card else default_size))
    found = with_small_size(found, size)
    return GradeRequest(
        problem=found,
        submission=remarked(submission, (*remarks, *about_size(found, size))),
        device=device,
        gpu=_gpu(wish.gpu, device),
        size=size,
        tolerance=ToleranceRule(wish.tolerance or (card.tolerance if card else ToleranceRule.MEASURED)),
        sandbox=SandboxMode(wish.sandbox),
        timeout_s=wish.timeout,
        build_timeout_s=wish.build_timeout,
        replay=card,
        require_own_kernel=wish.require_own_kernel or (card.required_own_kernel if card else None),
        strict=strict(wish.sandbox, wish.strict),
        baselines=baselines(wish.baseline, device),
        speedup_of=_other(wish.speedup_of, device),
        profile=_profile(wish.profile, device),
        deadline_s=wish.deadline,
        weights=_weights(wish.weights, card),
    )


def about_size(problem: Problem, size: SizeName) -> tuple[Finding, ...]:
    """Say of a small size that was found which constants it has."""
    said = found_small(problem, size)
    return () if said is None else (finding(Code.SIZE_FOUND, f"small size of {problem.name}: {said}"),)


def remarked(submission: Submission | Unread, remarks: tuple[Finding, ...]) -> Submission | Unread:
    """Add findings to those of a submission's text."""
    if not remarks or not isinstance(submission, Submission):
        return submission
    return replace(submission, findings=(*submission.findings, *remarks))


def _problem(wish: Wish, card: Scorecard | None) -> Problem:
    """Read the problem: the one that the user names, else the one whose name the replayed card has in the listing.

    A card is data: what it says is never taken for a path. Raises UsageError where the problem is not the card's own.
    """
    if wish.problem is not None:
        problem = find_problem(wish.problem, wish.problems)
    elif card is not None:
        problem = _problem_of(card, wish.problems)
    else:
        raise UsageError("PROBLEM must be named, unless --replay names a scorecard")
    if card is not None and problem.sha256 != card.problem.sha256 and not wish.changed_problem:
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


def baselines(wanted: Sequence[str], device: DeviceKind) -> list[BaselineKind]:
    """Read what is to be timed beside the reference. Raises UsageError where `device` has no use for it."""
    kinds = list(dict.fromkeys(BaselineKind(each) for each in wanted))
    if kinds and device is DeviceKind.EMULATED:
        raise UsageError("--baseline says nothing on emulated: nothing is timed there", hint="add --device cuda or cpu")
    if BaselineKind.EAGER in kinds and device is not DeviceKind.CUDA:
        message = "--baseline eager is the reference with TF32 as PyTorch has it, which is for cuda"
        raise UsageError(message, hint="leave it out: every grade measures the eager reference")
    return kinds


def _profile(wanted: str | None, device: DeviceKind) -> ProfilerKind | None:
    """Read which profiler is wanted. Raises UsageError where `device` has no use for it."""
    if wanted is None:
        return None
    kind = ProfilerKind(wanted)
    if kind is ProfilerKind.NCU and device is not DeviceKind.CUDA:
        message = f"--profile ncu reads the counters of an NVIDIA GPU, and this grade is on {device.value}"
        raise UsageError(message, hint="add --device cuda, or ask for --profile torch on cuda or cpu")
    if device is DeviceKind.EMULATED:
        raise UsageError("--profile says nothing on emulated: nothing is timed there", hint="add --device cuda or cpu")
    return kind


def _weights(wanted: str | None, card: Scorecard | None) -> WeightsRule | None:
    """Read which weights calls have; None leaves it to the problem. In a card that says nothing they stayed."""
    if wanted is not None:
        return WeightsRule(wanted)
    if card is None:
        return None
    if card.weights is not None:
        return card.weights.rule
    return WeightsRule.FROZEN if card.checks else None


def _other(path: str | None, device: DeviceKind) -> Submission | None:
    """Read the submission that is to be a baseline: unlike the one that is graded, it must be one."""
    if path is None:
        return None
    if device is DeviceKind.EMULATED:
        raise UsageError(
            "--speedup-of says nothing on emulated: nothing is timed there", hint="add --device cuda or cpu"
        )
    read = read_submission(Path(path))
    if isinstance(read, Submission):
        return read
    raise UsageError(f"--speedup-of {path}: {read.message}", hint=read.next_step)


def strict(sandbox: str, wanted: bool) -> bool:  # noqa: FBT001 - the two options as they were given
    """Say whether every wall is insisted on. Raises UsageError where none is wanted at the same time."""
    if wanted and SandboxMode(sandbox) is SandboxMode.NONE:
        raise UsageError("--strict asks for every wall, and --sandbox none for none", hint="leave one of them out")
    return wanted


def has_walls(sandbox: str) -> bool:
    """Say whether submissions are kept from what this user can read."""
    return SandboxMode(sandbox) is not SandboxMode.NONE


def default_target(request: GradeRequest) -> Path:
    """Say where a scorecard goes. A replay does not overwrite the card that it is compared with."""
    ending = "replay.json" if request.replay is not None else "json"
    return Path("scorecards", card_place(request.problem.name, request.submission.name, ending))


def _device(name: str, gpu: str | None, card: Scorecard | None, submission: Submission | Unread) -> Choice:
    """Choose the device: the one that is asked for, the replayed card's, or what suits the text."""
    if name != AUTO:
        return Choice(DeviceKind(name))
    if card is not None:
        return Choice(card.device.kind)
    return Choice(default_device()) if gpu is not None else device_for(submission)


def device_for(submission: Submission | Unread) -> Choice:
    """Choose the device of a grade that asks for none: the CPU for C++ that is for nothing else."""
    usual = default_device()
    if not isinstance(submission, Submission) or not is_for_the_cpu(submission.source):
        return Choice(usual)
    message = f"graded on cpu and not on {usual.value}: it builds C++ for the CPU, and nothing in it is for a GPU"
    return Choice(DeviceKind.CPU, (finding(Code.GRADED_ON_CPU, message),))


def _gpu(wanted: str | None, device: DeviceKind) -> Gpu | None:
    if device is DeviceKind.CUDA:
        return choose(wanted)
    if wanted is not None:
        raise UsageError(f"--gpu says nothing on {device.value}", hint="add --device cuda, or leave --gpu out")
    return None


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
