"""The form of SOL-ExecBench and FlashInfer-Trace: `definition.json` with a function `run`, `workload.jsonl` with sizes.

FlashInfer-Trace wraps each workload into an object of a trace, and has neither formulas of axes nor own inputs.
"""

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

import msgspec

from evaluator.catalog.formula import FormulaError, evaluate
from evaluator.catalog.strict import Table, label, parsed, table, usable_names
from evaluator.errors import ProblemError
from evaluator.records import Constant, MatchedRatio

MOST_WORKLOADS = 10_000
_MOST_NAMES = 1000
_MOST_DIMS = 16
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
_Path = Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
_Extent = Annotated[int, msgspec.Meta(ge=0, le=2**40)]
_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Size = Annotated[float, msgspec.Meta(ge=0)]


class DType(StrEnum):
    """Dtypes of a definition, in PyTorch's names."""

    FLOAT64 = "float64"
    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT8_E4M3FN = "float8_e4m3fn"
    FLOAT8_E5M2 = "float8_e5m2"
    FLOAT4_E2M1 = "float4_e2m1"
    FLOAT4_E2M1FN_X2 = "float4_e2m1fn_x2"
    INT64 = "int64"
    INT32 = "int32"
    INT16 = "int16"
    INT8 = "int8"
    BOOL = "bool"

    @property
    def is_packed(self) -> bool:
        """Whether a byte holds two elements."""
        return self in (DType.FLOAT4_E2M1, DType.FLOAT4_E2M1FN_X2)


class AxisKind(StrEnum):
    """Kinds of axes."""

    CONST = "const"
    VAR = "var"
    EXPR = "expr"


class InputKind(StrEnum):
    """Sources of an input's value."""

    RANDOM = "random"
    SCALAR = "scalar"
    CUSTOM = "custom"
    SAFETENSORS = "safetensors"


class Axis(Table, frozen=True, kw_only=True):
    """An axis: a constant, a variable of the workload, or a formula of other axes."""

    type: AxisKind
    value: _Extent | None = None
    expression: str | None = None
    description: str | None = None


class TensorSpec(Table, frozen=True, kw_only=True):
    """An input or output. A `shape` of None is a Python number."""

    shape: Annotated[list[_Name], msgspec.Meta(max_length=_MOST_DIMS)] | None
    dtype: DType
    description: str | None = None


class InputSource(Table, frozen=True, kw_only=True):
    """Source of an input's value in a workload."""

    type: InputKind
    value: bool | int | float | None = None
    path: _Path | None = None
    tensor_key: _Name | None = None


class Definition(NamedTuple):
    """A definition; `axes`, `inputs` and `outputs` are in the order of the file."""

    name: str
    description: str
    axes: dict[str, Axis]
    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]
    reference: str
    entrypoint: str | None

    def extents(self, variables: Mapping[str, int], where: str) -> dict[str, int]:
        """Return the extents of all axes. Raises ProblemError if a formula has no value."""
        found = {name: axis.value for name, axis in self.axes.items() if axis.value is not None} | dict(variables)
        for name, axis in self.axes.items():
            if axis.expression is not None:
                found[name] = _evaluated(axis.expression, found, f"{where}: {label('axes', name)}")
        return found

    def elements(self, extents: Mapping[str, int], where: str) -> int:
        """Return the number of elements of all inputs and outputs."""
        specs = [("inputs", self.inputs), ("outputs", self.outputs)]
        return sum(
            math.prod(_evaluated(part, extents, f"{where}: {label(group, name)}") for part in spec.shape or ())
            for group, tensors in specs
            for name, spec in tensors.items()
        )


class Workload(NamedTuple):
    """Constants of a reference, with the author's tolerance. `elements` counts all inputs and outputs.

    `weight` is the number of calls in production, if known.
    """

    uuid: str
    axes: dict[str, Constant]
    elements: int
    tolerance: MatchedRatio | None = None
    weight: float = 1.0


class WorkloadLine(NamedTuple):
    """A workload with the sources of the inputs. `variables` are the axes of the line; a trace is FlashInfer's."""

    workload: Workload
    sources: dict[str, InputSource]
    variables: list[str]
    is_trace: bool


class _DefinitionFile(Table, frozen=True, kw_only=True):
    name: _Name
    axes: dict[str, Any]
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    reference: Annotated[str, msgspec.Meta(min_length=1)]
    description: str | None = None
    custom_inputs_entrypoint: _Name | None = None
    hf_id: str | None = None
    op_type: str | None = None
    tags: list[str] = []
    constraints: list[str] = []


class _Tolerance(Table, frozen=True, kw_only=True):
    """A tolerance. SOL-ExecBench ignores `required_match_ratio`, a misspelling in a third of the files."""

    max_atol: _Size = 1e-2
    max_rtol: _Size = 1e-2
    required_matched_ratio: _Share = 0.99
    required_match_ratio: _Share | None = None
    max_error_cap: _Size | None = None
    allow_negative_inf: bool = False


class _WorkloadLine(Table, frozen=True, kw_only=True):
    uuid: _Name
    axes: dict[str, _Extent]
    inputs: dict[str, Any]
    tolerance: dict[str, Any] | None = None


class _Trace(Table, frozen=True, kw_only=True):
    """An object of FlashInfer-Trace."""

    definition: str
    workload: dict[str, Any]
    solution: Any = None
    evaluation: Any = None


_OF_FLASHINFER = MatchedRatio(required_matched_ratio=1.0, either=True)
"""FlashInfer-Bench's defaults: workloads of traces have no tolerances."""


def read_definition(text: str, where: str) -> Definition:
    """Read a definition strictly; no code is run.

    Raises:
        ProblemError: the text is no definition; the message names the key.
    """
    file = table(parsed(text, where), _DefinitionFile, where)
    axes = {name: _axis(value, where, name) for name, value in file.axes.items()}
    inputs, outputs = (
        {name: table(value, TensorSpec, where, label(group, name)) for name, value in getattr(file, group).items()}
        for group in ("inputs", "outputs")
    )
    usable_names([*axes, *inputs], where)
    if not outputs:
        raise ProblemError(f"{where}: outputs: at least one output is required")
    if max(len(axes), len(inputs), len(outputs)) > _MOST_NAMES:
        raise ProblemError(f"{where}: more than {_MOST_NAMES} axes, inputs or outputs")
    for name in axes.keys() & inputs.keys():
        raise ProblemError(f"{where}: {name} is the name of both an axis and an input")
    packed = next((name for name, spec in outputs.items() if spec.dtype.is_packed), None)
    if packed is not None:
        raise ProblemError(f"{where}: {label('outputs', packed)}: outputs in {outputs[packed].dtype} are not supported")
    description = " ".join((file.description or "").split())
    return Definition(file.name, description, axes, inputs, outputs, file.reference, file.custom_inputs_entrypoint)


def _axis(value: object, where: str, name: str) -> Axis:
    key = label("axes", name)
    axis = table(value, Axis, where, key)
    wanted = {AxisKind.CONST: "value", AxisKind.EXPR: "expression"}.get(axis.type)
    for field in ("value", "expression"):
        if (getattr(axis, field) is not None) is not (field == wanted):
            needed = "required" if field == wanted else "unknown"
            raise ProblemError(f"{where}: {key}.{field}: this key is {needed} for an axis of type {axis.type}")
    return axis


def read_workloads(text: str, definition: Definition, where: str) -> list[WorkloadLine]:
    """Read the workloads of a definition, one JSON object a line. All have the same kinds of sources.

    Raises:
        ProblemError: a line is no workload of this definition; the message names line and key.
    """
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise ProblemError(f"{where}: no workload")
    if len(lines) > MOST_WORKLOADS:
        raise ProblemError(f"{where}: more than {MOST_WORKLOADS} workloads")
    found: list[WorkloadLine] = []
    for number, line in lines:
        found.append(_workload(parsed(line, f"{where}, line {number}"), definition, f"{where}, line {number}"))
        if _constants(found[-1]) != _constants(found[0]):
            raise ProblemError(f"{where}, line {number}: other axes, or other types of inputs, than in the first line")
    uuids = [each.workload.uuid for each in found]
    if len(set(uuids)) < len(uuids):
        raise ProblemError(f"{where}: a uuid occurs twice")
    return found


def _constants(line: WorkloadLine) -> tuple[dict[str, type], dict[str, InputKind]]:
    types = {name: type(value) for name, value in line.workload.axes.items()}
    return types, {name: source.type for name, source in line.sources.items()}


def _workload(value: object, definition: Definition, where: str) -> WorkloadLine:
    if is_trace := isinstance(value, dict) and "workload" in value:
        trace = table(value, _Trace, where)
        if trace.definition != definition.name:
            raise ProblemError(f"{where}: a workload of {trace.definition[:80]!r}, not of {definition.name!r}")
        value = trace.workload
    line = table(value, _WorkloadLine, where)
    sources = _sources(line, definition, where)
    missing = [name for name, axis in definition.axes.items() if axis.type is AxisKind.VAR and name not in line.axes]
    if missing:
        raise ProblemError(f"{where}: {label('axes', missing[0])}: this axis is required")
    fixed = [name for name in line.axes if name in definition.axes and definition.axes[name].type is not AxisKind.VAR]
    if fixed:
        raise ProblemError(f"{where}: {label('axes', fixed[0])}: the definition fixes this axis")
    # A further axis is an argument of the function for the inputs.
    further = [name for name in line.axes if name not in definition.axes]
    if further and definition.entrypoint is None:
        raise ProblemError(f"{where}: {label('axes', further[0])}: the definition has no such axis")
    usable_names(further, where)
    constants: dict[str, Constant] = {**line.axes}
    for name, source in sources.items():
        if source.value is not None:
            constants[name] = _scalar(source.value, definition.inputs[name], f"{where}: {label('inputs', name)}")
        if source.path is not None and source.tensor_key is not None:
            constants |= {f"{name}_file": source.path, f"{name}_key": source.tensor_key}
    workload = Workload(
        uuid=line.uuid,
        axes=constants,
        elements=definition.elements(definition.extents(line.axes, where), where),
        tolerance=_OF_FLASHINFER if is_trace else _tolerance(line.tolerance, where),
    )
    return WorkloadLine(workload, sources, [*line.axes], is_trace)


def _sources(line: _WorkloadLine, definition: Definition, where: str) -> dict[str, InputSource]:
    """Return the sources by input. An input beyond the definition's may be `custom`: ignored, as by SOL-ExecBench."""
    sources = {name: table(value, InputSource, where, label("inputs", name)) for name, value in line.inputs.items()}
    for name, source in sources.items():
        key = label("inputs", name)
        if name not in definition.inputs and source.type is not InputKind.CUSTOM:
            raise ProblemError(f"{where}: {key}: the definition has no such input")
        if source.type is InputKind.CUSTOM and definition.entrypoint is None:
            raise ProblemError(f"{where}: {key}: custom, but the definition has no custom_inputs_entrypoint")
        wanted = {InputKind.SCALAR: ("value",), InputKind.SAFETENSORS: ("path", "tensor_key")}.get(source.type, ())
        for field in ("value", "path", "tensor_key"):
            if (getattr(source, field) is not None) is not (field in wanted):
                needed = "required" if field in wanted else "unknown"
                raise ProblemError(f"{where}: {key}.{field}: this key is {needed} for an input of type {source.type}")
    # SOL-ExecBench draws inputs without a source.
    return {name: sources.get(name, InputSource(type=InputKind.RANDOM)) for name in definition.inputs}


def _scalar(value: Constant, spec: TensorSpec, where: str) -> Constant:
    if spec.shape is not None:
        raise ProblemError(f"{where}: a scalar, but the input is a tensor")
    is_float = spec.dtype.value.startswith(("float", "bfloat"))
    return float(value) if is_float and type(value) is int else value


def _tolerance(value: object, where: str) -> MatchedRatio:
    given = _Tolerance() if value is None else table(value, _Tolerance, where, "tolerance")
    return MatchedRatio(
        max_atol=given.max_atol,
        max_rtol=given.max_rtol,
        required_matched_ratio=given.required_matched_ratio,
        max_error_cap=given.max_error_cap,
        allow_negative_inf=given.allow_negative_inf,
    )


def _evaluated(expression: str, extents: Mapping[str, int], where: str) -> int:
    try:
        return evaluate(expression, extents)
    except FormulaError as error:
        raise ProblemError(f"{where}: {expression[:80]!r} {error}") from error
