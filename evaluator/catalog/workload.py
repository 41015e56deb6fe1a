"""Cases of a problem's `workload.jsonl`: one JSON object a line, in the form of SOL-ExecBench and FlashInfer-Bench.

Of the keys of others, `inputs` may only say what `get_inputs` does anyway, and `tolerance` is kept as data.
"""

import math
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from evaluator.catalog.reference import LiteralSpan, ParsedReference
from evaluator.catalog.strict import Table, parsed, table
from evaluator.catalog.text import did_you_mean, one_of
from evaluator.errors import ProblemError
from evaluator.records import Case, CaseName, Constant, SizeName

WORKLOAD_FILE = "workload.jsonl"
MOST_CASES = 1000
"""More than twice the longest published workload (440)."""
RESERVED = ("all", "hidden", *(size.value for size in SizeName))
"""Names of no case of a workload: the sizes, and the words of `--case`."""
_MOST_CHARACTERS = 1 << 16
_LONGEST_SHOWN = 200
_BITS: Final = 63
_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class _Line(Table, frozen=True, kw_only=True):
    """A line of the file. `inputs` and `tolerance` are those of SOL-ExecBench and FlashInfer-Bench."""

    uuid: _Text | None = None
    axes: dict[str, Any]
    inputs: dict[str, Any] | None = None
    tolerance: dict[str, bool | float] | None = None
    name: _Text | None = None
    weight: Annotated[float, msgspec.Meta(gt=0, le=1e12)] = 1.0
    origin: _Text | None = None


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
    if len(line) > _MOST_CHARACTERS:
        raise ProblemError(f"{label}: {len(line)} characters; a case has at most {_MOST_CHARACTERS}")
    fields = table(parsed(line, label), _Line, label)
    for key in ("uuid", "name", "origin"):
        text = getattr(fields, key)
        if text is not None and not (text.strip() and text.isprintable()):
            raise ProblemError(f"{label}: {key}: got {_shown(text)}, expected one printable line")
    name = fields.name or fields.uuid or f"case_{number}"
    try:
        msgspec.convert(name, CaseName)
    except msgspec.ValidationError as error:
        message = f"{label}: {'name' if fields.name else 'uuid'}: {_shown(name)} cannot be a name"
        raise ProblemError(message, hint="use at most 64 letters, digits, and _ . + -: decode_16") from error
    if name in RESERVED or name.startswith("hidden"):
        raise ProblemError(f"{label}: name: {name} is taken; {', '.join(RESERVED)} and hidden… mean other cases")
    for given, how in (fields.inputs or {}).items():
        if how != {"type": "random"}:
            message = f"{label}: inputs.{given[:_LONGEST_SHOWN]}: got {_shown(how)}, but get_inputs makes the inputs"
            raise ProblemError(message, hint='leave `inputs` out, or write {"type": "random"}')
    return Case(
        name=name,
        axes=_axes(fields.axes, f"{label}: axes", reference),
        weight=fields.weight,
        origin=fields.origin or "",
        uuid=fields.uuid,
        tolerance=fields.tolerance or {},
    )


def _axes(axes: dict[str, Any], label: str, reference: ParsedReference) -> dict[str, Constant]:
    for name, value in axes.items():
        check_constant(f"{label}.{name[:_LONGEST_SHOWN]}", name, value, reference)
    complete = {name: axes.get(name, literal.value) for name, literal in reference.constants.items()}
    first_at: dict[LiteralSpan, str] = {}
    for name, literal in reference.constants.items():
        first = first_at.setdefault(literal.span, name)
        if complete[first] != complete[name]:
            raise ProblemError(f"{label}.{name}: shares its literal with {first}; set both to one value")
    return complete


def _shown(value: object) -> str:
    """Return a value for a message, cut."""
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
