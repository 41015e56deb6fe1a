"""Cases of a problem's `workload.jsonl`: one JSON object a line, in the form of SOL-ExecBench and FlashInfer-Bench.

Of the keys of others, `inputs` may only say what `get_inputs` does anyway, and `tolerance` is kept as data.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from evaluator.catalog.reference import LiteralSpan, ParsedReference
from evaluator.catalog.text import did_you_mean, one_of
from evaluator.errors import ProblemError
from evaluator.records import Case, CaseName, Constant, SizeName

WORKLOAD_FILE = "workload.jsonl"
MOST_CASES = 1000
"""More than twice the longest published workload (440)."""
RESERVED = ("all", "hidden", *(size.value for size in SizeName))
"""Names of no case of a workload: the sizes, and the words of `--case`."""
_KEYS = ("uuid", "axes", "inputs", "tolerance", "name", "weight", "origin")
_MOST_CHARACTERS = 1 << 16
_LONGEST_ORIGIN = 200
_MOST_WEIGHT = 1e12
_BITS: Final = 63


def read_workload(text: str, path: Path, reference: ParsedReference) -> list[Case]:
    """Read the cases in the text of a workload file; axes that a case leaves out have the reference's values.

    Raises:
        ProblemError: a line is no case; the message names the line and the key.
    """
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise ProblemError(f"{path}: has no case", hint='a case is a line like {"name": "decode", "axes": {"N": 16}}')
    if len(lines) > MOST_CASES:
        raise ProblemError(f"{path}: {len(lines)} cases; a problem has at most {MOST_CASES}")
    cases: dict[str, tuple[int, Case]] = {}
    for number, line in lines:
        case = _case(line, f"{path}: line {number}", number, reference)
        if case.name in cases:
            message = f"{path}: line {number}: name: line {cases[case.name][0]} has the name {case.name} too"
            raise ProblemError(message, hint="every case has a name of its own; without `name`, the uuid is the name")
        cases[case.name] = number, case
    return [case for _, case in cases.values()]


def check_constant(label: str, name: str, value: object, reference: ParsedReference) -> None:
    """Raise ProblemError unless `value` can replace the literal of the reference's constant `name`.

    `label` names file and key in the message.
    """
    constants = reference.constants
    if name not in constants:
        message = f"{label}: reference.py has no module-level constant {name} = literal; {one_of(constants)}"
        raise ProblemError(message, hint=did_you_mean(name, constants))
    expected = type(constants[name].value)
    if type(value) is not expected:
        raise ProblemError(f"{label}: got {_shown(value)}, expected {expected.__name__}, as in reference.py")
    if isinstance(value, float) and not math.isfinite(value):
        raise ProblemError(f"{label}: got {value!r}, expected a finite number")
    extents = value if isinstance(value, list) else [value]
    if any(type(extent) is int and extent.bit_length() > _BITS for extent in extents):
        raise ProblemError(f"{label}: got an integer of more than 64 bits")
    if isinstance(value, list) and not all(type(extent) is int for extent in value):
        raise ProblemError(f"{label}: got {_shown(value)}, expected a list of integers, as in reference.py")


def _case(line: str, label: str, number: int, reference: ParsedReference) -> Case:
    fields = _object(line, label)
    for key in fields:
        if key not in _KEYS:
            raise ProblemError(f"{label}: {_shown(key)}: unknown key; {one_of(_KEYS)}", hint=did_you_mean(key, _KEYS))
    if "axes" not in fields:
        raise ProblemError(f"{label}: axes: this key is required")
    uuid = _text(fields.get("uuid"), f"{label}: uuid")
    name = _text(fields.get("name"), f"{label}: name") or uuid or f"case_{number}"
    try:
        msgspec.convert(name, CaseName)
    except msgspec.ValidationError as error:
        key = "name" if "name" in fields else "uuid"
        message = f"{label}: {key}: {_shown(name)} cannot be a name"
        raise ProblemError(message, hint="use at most 64 letters, digits, and _ . + -: decode_16") from error
    if name in RESERVED or name.startswith("hidden"):
        raise ProblemError(f"{label}: name: {name} is taken; {', '.join(RESERVED)} and hidden… mean other cases")
    _check_inputs(fields.get("inputs"), f"{label}: inputs")
    return Case(
        name=name,
        axes=_axes(fields["axes"], f"{label}: axes", reference),
        weight=_weight(fields.get("weight", 1.0), f"{label}: weight"),
        origin=_text(fields.get("origin"), f"{label}: origin") or "",
        uuid=uuid,
        tolerance=_tolerance(fields.get("tolerance"), f"{label}: tolerance"),
    )


def _object(line: str, label: str) -> dict[str, Any]:
    if len(line) > _MOST_CHARACTERS:
        raise ProblemError(f"{label}: {len(line)} characters; a case has at most {_MOST_CHARACTERS}")
    import json  # A client of the ready judge reads no workload.

    try:
        fields = json.loads(line, object_pairs_hook=_once, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise ProblemError(f"{label}: not JSON: {reason}", hint="write each case on one line") from error
    if not isinstance(fields, dict):
        raise ProblemError(f"{label}: got {_shown(fields)}, expected an object")
    return fields


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{_shown(next(name for name in names if names.count(name) > 1))} is there twice")
    return fields


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _axes(axes: object, label: str, reference: ParsedReference) -> dict[str, Constant]:
    if not isinstance(axes, dict):
        raise ProblemError(f"{label}: got {_shown(axes)}, expected an object of constants of the reference")
    for name, value in axes.items():
        check_constant(f"{label}.{name[:_LONGEST_ORIGIN]}", name, value, reference)
    complete = {name: axes.get(name, literal.value) for name, literal in reference.constants.items()}
    first_at: dict[LiteralSpan, str] = {}
    for name, literal in reference.constants.items():
        first = first_at.setdefault(literal.span, name)
        if complete[first] != complete[name]:
            raise ProblemError(f"{label}.{name}: shares its literal with {first}; set both to one value")
    return complete


def _weight(weight: object, label: str) -> float:
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight <= _MOST_WEIGHT:
        raise ProblemError(f"{label}: got {_shown(weight)}, expected a number above 0 and at most {_MOST_WEIGHT:g}")
    return float(weight)


def _tolerance(tolerance: object, label: str) -> dict[str, Any]:
    if tolerance is None:
        return {}
    if not isinstance(tolerance, dict) or not all(
        isinstance(value, bool | int | float) for value in tolerance.values()
    ):
        raise ProblemError(f"{label}: got {_shown(tolerance)}, expected an object of numbers")
    return tolerance


def _check_inputs(inputs: object, label: str) -> None:
    """Raise ProblemError for inputs that `get_inputs` does not draw."""
    if inputs is None:
        return
    if not isinstance(inputs, Mapping):
        raise ProblemError(f"{label}: got {_shown(inputs)}, expected an object")
    for name, how in inputs.items():
        if how != {"type": "random"}:
            message = f"{label}.{name[:_LONGEST_ORIGIN]}: got {_shown(how)}, but get_inputs makes the inputs"
            raise ProblemError(message, hint='leave `inputs` out, or write {"type": "random"}')


def _text(value: object, label: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip() or not value.isprintable() or len(value) > _LONGEST_ORIGIN:
        raise ProblemError(f"{label}: got {_shown(value)}, expected one line of at most {_LONGEST_ORIGIN} characters")
    return value


def _shown(value: object) -> str:
    """Return a value for a message, cut."""
    text = repr(value)
    return text if len(text) <= _LONGEST_ORIGIN else f"{text[:_LONGEST_ORIGIN]}…"
