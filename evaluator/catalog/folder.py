"""Problem folders: `problem.toml`, read strictly, and `reference.py`, parsed but not run, checked for consistency."""

import hashlib
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from evaluator.catalog.formula import FormulaError, evaluate
from evaluator.catalog.reference import ParsedReference, read_reference
from evaluator.catalog.strict import Table, table
from evaluator.catalog.text import Origin, decode, did_you_mean, one_of, read_bytes
from evaluator.catalog.workload import WORKLOAD_FILE, check_constant, read_workload
from evaluator.errors import ProblemError
from evaluator.records import (
    AxisRange,
    BenchmarkRule,
    Case,
    CheckRule,
    ElementFormat,
    Formats,
    L2Rule,
    Layout,
    Mode,
    OutputFormat,
    Precision,
    Problem,
    Profile,
    RooflineOverride,
    SizeName,
    ToleranceOverride,
    WeightsRule,
    cases_of,
)

_BLOCKS = (ElementFormat.MXFP4, ElementFormat.NVFP4)
_PATH = re.compile(r"output(\[\d+\]|\.\w+)*")
_INPUTS = [form.value for form in ElementFormat if form is not ElementFormat.E8M0]
_OUTPUTS = [form.value for form in ElementFormat if form not in _BLOCKS]
_MOST_FLIPS = 1 / 16


def checked_formats(
    inputs: Mapping[str, Any], outputs: Mapping[str, Any], reference: ParsedReference, path: Path
) -> Formats:
    """Return the declared formats.

    Raises:
        ProblemError: a name or a format is unknown, a block format lacks the path of its scales, or too many elements
            may flip.
    """
    for name, value in inputs.items():
        label = f"{path}: formats.inputs.{name}"
        if reference.forward is not None and name not in reference.forward:
            message = f"{label}: Model.forward has no parameter {name}; {one_of(reference.forward)}"
            raise ProblemError(message, hint=did_you_mean(name, reference.forward))
        if value not in _INPUTS:
            raise ProblemError(f"{label}: got {value!r}; {one_of(_INPUTS)}")
    return Formats(
        inputs={name: ElementFormat(value) for name, value in inputs.items()},
        outputs={name: _output(f"{path}: formats.outputs.{name!r}", name, value) for name, value in outputs.items()},
    )


def _output(label: str, name: str, value: Any) -> OutputFormat:
    if not _is_path(name):
        hint = 'the form is "output", "output[0]" or "output.key"'
        raise ProblemError(f"{label}: not the path of an output", hint=hint)
    match value:
        case str() if value in _OUTPUTS:
            return OutputFormat(ElementFormat(value))
        case {"format": form, "scales": scales, **rest} if form in _BLOCKS and not rest:
            if _is_path(scales) and scales != name:
                return OutputFormat(ElementFormat(form), scales)
        case {"flips": float(flips), **rest} if 0 < flips <= _MOST_FLIPS and not rest:
            return OutputFormat(flips=flips)
    message = (
        f"{label}: got {value!r}; {one_of(_OUTPUTS)}, for {' or '.join(_BLOCKS)} a table with the path of the scales, "
        "or the share of elements that may flip, at most 1/16"
    )
    raise ProblemError(message, hint='for example { format = "mxfp4", scales = "output[1]" } or { flips = 1e-5 }')


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and _PATH.fullmatch(value) is not None


PROBLEM_FILE = "problem.toml"
REFERENCE_FILE = "reference.py"

Level = Literal[1, 2, 3]
Text = Annotated[str, msgspec.Meta(min_length=1)]
Positive = Annotated[float, msgspec.Meta(gt=0, le=1e6)]


class _Tolerance(Table, frozen=True, kw_only=True):
    multiple: Positive | None = None
    floor: Positive | None = None


class _Roofline(Table, frozen=True, kw_only=True):
    reason: Text
    read_bytes: Text | None = None
    written_bytes: Text | None = None
    flop: Text | None = None


class _Formats(Table, frozen=True, kw_only=True):
    """The `[formats.…]` tables: formats of few bits, by parameter of forward and by path of the output."""

    inputs: dict[str, Any] = {}
    outputs: dict[str, Any] = {}


class Sizes(Table, frozen=True, kw_only=True):
    """The `[sizes.…]` tables: constants of the reference, by name."""

    # Checked separately: msgspec's messages do not name the keys of a dict.
    full: dict[str, Any]
    small: dict[str, Any]
    awkward: dict[str, Any] | None = None


class _Range(Table, frozen=True, kw_only=True):
    """A range of `[hidden]`."""

    min: Annotated[int, msgspec.Meta(ge=1)]
    max: Annotated[int, msgspec.Meta(le=1 << 40)]
    multiple_of: Annotated[int, msgspec.Meta(ge=1)] = 1


class ProblemFile(Table, frozen=True, kw_only=True):
    """A problem.toml, as it is written."""

    title: Text
    level: Level
    description: Text
    precision: Precision = Precision.FP32
    mode: Mode = Mode.TRAIN
    backward: bool = False
    split: dict[str, Any] = {}
    layouts: list[Layout] = []
    weights: WeightsRule = WeightsRule.CHANGING
    l2: L2Rule = L2Rule.COLD
    check: CheckRule | None = None
    profiles: dict[str, Any] = {}
    tolerance: _Tolerance = _Tolerance()
    roofline: _Roofline | None = None
    formats: _Formats = _Formats()
    hidden: dict[str, Any] = {}
    sizes: Sizes


def problem_name(folder: Path) -> str:
    """Return a problem's name: the folder's name as given (also of a link), for `.` and `..` the real name."""
    return folder.name if folder.name not in {"", ".."} else folder.resolve().name


def no_problem(folder: Path, missing: str) -> ProblemError:
    """Return the error of a folder without one of a problem's files."""
    hint = "`warpgrade new problem NAME` writes both files"
    return ProblemError(f"{folder} is no problem: it has no {missing}", hint=hint)


def read_folder(folder: Path, origin: Origin, found_in: Path | None = None) -> Problem:
    """Read the problem in `folder`; the folder's name is the problem's. `found_in` is passed to `read_bytes`.

    Raises:
        ProblemError: a file is missing or broken, or both files contradict each other; the message names file and key.
    """
    toml_path, reference_path = folder / PROBLEM_FILE, folder / REFERENCE_FILE
    for path in (reference_path, toml_path):
        if not os.path.lexists(path):
            raise no_problem(folder, path.name)
    toml_bytes, reference_bytes = (read_bytes(path, found_in) for path in (toml_path, reference_path))
    workload_path = folder / WORKLOAD_FILE
    workload_bytes = read_bytes(workload_path, found_in) if os.path.lexists(workload_path) else b""
    header = _decode_toml(decode(toml_bytes, toml_path), toml_path)
    source = decode(reference_bytes, reference_path)
    reference = read_reference(source, str(reference_path))
    cases = cases_of(_checked_sizes(header.sizes, reference, toml_path))
    if os.path.lexists(workload_path):
        workload = read_workload(decode(workload_bytes, workload_path), workload_path, reference)
        cases |= {case.name: case for case in workload}
    return Problem(
        name=problem_name(folder),
        title=header.title,
        level=header.level,
        description=header.description,
        origin=origin,
        path=str(folder),
        source=source,
        # Equal to `cat reference.py problem.toml workload.jsonl | sha256sum`.
        sha256=hashlib.sha256(reference_bytes + toml_bytes + workload_bytes).hexdigest(),
        cases=cases,
        precision=header.precision,
        mode=header.mode,
        backward=header.backward,
        tolerance=ToleranceOverride(header.tolerance.multiple, header.tolerance.floor),
        split=_checked_split(header.split, reference, toml_path),
        roofline=_checked_roofline(header.roofline, cases, reference, toml_path),
        profiles=_checked_profiles(header.profiles, toml_path),
        layouts=header.layouts,
        weights=header.weights,
        l2=header.l2,
        hidden=_checked_hidden(header, reference, toml_path),
        formats=checked_formats(header.formats.inputs, header.formats.outputs, reference, toml_path),
        check=_checked_check(header, reference, toml_path),
        benchmark=BenchmarkRule.KERNELBENCH if header.check is None else BenchmarkRule.CHECK,
    )


def _decode_toml(text: str, path: Path) -> ProblemFile:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ProblemError(f"{path}: not TOML: {error}") from error
    return table(document, ProblemFile, str(path))


def _checked_sizes(sizes: Sizes, reference: ParsedReference, path: Path) -> dict[str, dict[str, Any]]:
    tables: dict[str, dict[str, Any]] = {SizeName.FULL: sizes.full, SizeName.SMALL: sizes.small}
    if sizes.awkward is not None:
        tables[SizeName.AWKWARD] = sizes.awkward
    for size, constants in tables.items():
        for name, value in constants.items():
            check_constant(f"{path}: sizes.{size}.{name}", name, value, reference)
        differing = sorted(sizes.full.keys() ^ constants.keys())
        if differing:
            names = ", ".join(differing)
            raise ProblemError(
                f"{path}: {names}: set in only one of sizes.full and sizes.{size}; all sizes need the same keys"
            )
    for name, value in sizes.full.items():
        literal = reference.constants[name].value
        if value != literal:
            message = f"{path}: sizes.full.{name} is {value!r}, but {REFERENCE_FILE} says {name} = {literal!r}"
            raise ProblemError(message, hint="the full size is given by the reference's literals; make both equal")
    return tables


def _checked_hidden(header: ProblemFile, reference: ParsedReference, path: Path) -> dict[str, AxisRange]:
    spans = [literal.span for literal in reference.constants.values()]
    ranges: dict[str, AxisRange] = {}
    for name, declared in header.hidden.items():
        label = f"{path}: hidden.{name}"
        limits = table(declared, _Range, str(path), f"hidden.{name}")
        check_constant(label, name, limits.min, reference)
        if spans.count(reference.constants[name].span) > 1:
            raise ProblemError(f"{label}: {name} shares its literal with another constant; write two literals")
        if name not in header.sizes.full:
            raise ProblemError(f"{label}: no size sets {name}", hint=f"add {name} to each [sizes] table")
        if -(-limits.min // limits.multiple_of) * limits.multiple_of > limits.max:
            raise ProblemError(f"{label}: no multiple of {limits.multiple_of} from {limits.min} to {limits.max}")
        ranges[name] = AxisRange(limits.min, limits.max, limits.multiple_of)
    return ranges


def _checked_split(split: dict[str, Any], reference: ParsedReference, path: Path) -> dict[str, int]:
    for name, dim in split.items():
        label = f"{path}: split.{name}"
        if not isinstance(dim, int) or isinstance(dim, bool) or dim < 0:
            raise ProblemError(f"{label}: got {dim!r}, expected a dimension: an integer, 0 or more")
        if reference.forward is None:
            raise ProblemError(f"{label}: Model in {REFERENCE_FILE} defines no forward, so its parameters are unknown")
        if name not in reference.forward:
            message = f"{label}: Model.forward has no parameter {name}; {one_of(reference.forward)}"
            raise ProblemError(message, hint=did_you_mean(name, reference.forward))
    return split


def _checked_check(header: ProblemFile, reference: ParsedReference, path: Path) -> CheckRule | None:
    check = header.check
    if check is not None and not reference.has_check:
        message = f"{path}: check: {REFERENCE_FILE} defines no function check(inputs, outputs)"
        raise ProblemError(message, hint="return None for a right answer, and a message for a wrong one")
    if check is CheckRule.INSTEAD and header.backward:
        message = f'{path}: check: "instead" leaves the gradients of backward = true without a comparison'
        raise ProblemError(message, hint='write check = "beside", or return the gradients from forward')
    return check


def _checked_roofline(
    roofline: _Roofline | None, cases: dict[str, Case], reference: ParsedReference, path: Path
) -> RooflineOverride | None:
    """Evaluate every formula for every case: no formula can then fail during a grade."""
    if roofline is None:
        return None
    full_constants = {name: literal.value for name, literal in reference.constants.items()}
    formulas = {name: getattr(roofline, name) for name in ("read_bytes", "written_bytes", "flop")}
    if not any(formulas.values()):
        raise ProblemError(f"{path}: roofline: no key set; {one_of(formulas)}")
    for name, formula in formulas.items():
        for case in cases.values() if formula is not None else ():
            try:
                evaluate(formula, {**full_constants, **case.axes})
            except FormulaError as error:
                message = f"{path}: roofline.{name}: {formula!r} {error} (case {case.name})"
                raise ProblemError(message) from error
    return RooflineOverride(reason=roofline.reason, **formulas)


def _checked_profiles(profiles: dict[str, Any], path: Path) -> dict[Profile, str | bool]:
    choices = [profile.value for profile in Profile if profile is not Profile.AS_GIVEN]
    for name, value in profiles.items():
        label = f"{path}: profiles.{name}"
        if name not in choices:
            raise ProblemError(f"{label}: unknown profile; {one_of(choices)}", hint=did_you_mean(name, choices))
        if value is not True and not (isinstance(value, str) and value.strip()):
            message = f"{label}: got {value!r}, expected true to force the profile, or a reason to exclude it"
            raise ProblemError(message)
    return {Profile(name): value for name, value in profiles.items()}
