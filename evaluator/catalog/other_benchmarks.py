"""Problems of other benchmarks: definitions, and lists of shapes.

SOL-ExecBench has a folder with `definition.json` and `workload.jsonl`; FlashInfer-Trace has files
`definitions/…/NAME.json` and `workloads/…/NAME.jsonl`.

kernelbench.com has `reference.py` in KernelBench's form and `shapes.py`, whose `SHAPES` set constants of the reference.
Atrex-Bench has `reference.py` with Model alone, `input.py` with a function of the inputs, `shapes.json` with the
arguments of both, and `metadata.json` with the number of calls in production.
"""

import ast
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from evaluator.catalog.definition import Definition, DType, Workload, read_definition, read_workloads
from evaluator.catalog.folder import REFERENCE_FILE, problem_name
from evaluator.catalog.kernelbot import TASK_FILE, read_task
from evaluator.catalog.module_text import module_text
from evaluator.catalog.reference import module_literals, parse, read_reference
from evaluator.catalog.shapes import (
    MOST_SHAPES,
    ShapesText,
    checked_constant,
    constant_of,
    literal_defaults,
    workload_of,
)
from evaluator.catalog.strict import Table, label, parsed, parsed_yaml, table, usable_names
from evaluator.catalog.text import Origin, decode, one_of, read_bytes
from evaluator.catalog.workload import RESERVED, WORKLOAD_FILE
from evaluator.errors import ProblemError
from evaluator.records import (
    BenchmarkRule,
    Case,
    Constant,
    ElementFormat,
    Formats,
    MatchedRatio,
    Precision,
    Problem,
    SizeName,
)

DEFINITION_FILE = "definition.json"
_CASE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}")


def is_definition(path: Path) -> bool:
    """Return whether a path names a folder with a definition, or a definition of FlashInfer-Trace."""
    if path.suffix == ".json":
        return "definitions" in path.parts[:-1] and os.path.isfile(path)  # noqa: PTH113 - the name may be too long
    return os.path.lexists(path / DEFINITION_FILE)


def read_definition_problem(path: Path, found_in: Path | None = None) -> Problem:
    """Read a definition with the workloads. The smallest workload is the size small, the largest the size full.

    Args:
        path: a folder with `definition.json`, or a definition of FlashInfer-Trace.
        found_in: passed to `read_bytes`.

    Raises:
        ProblemError: a file is missing or broken; the message names the file and the key.
    """
    file, workload_file = _files(path)
    if not os.path.lexists(workload_file):
        raise ProblemError(f"{path} is no problem: it has no {workload_file.name} with sizes for its axes")
    workloads_in = found_in
    if found_in is not None and not workload_file.is_relative_to(found_in):  # the list is of a folder of definitions
        workloads_in = Path(os.path.commonpath((file, workload_file)))
    data, workload_data = read_bytes(file, found_in), read_bytes(workload_file, workloads_in)
    definition = read_definition(decode(data, file), str(file))
    lines = read_workloads(decode(workload_data, workload_file), definition, str(workload_file))
    source = module_text(definition, lines[0], str(file.parent), str(file))
    workloads = [line.workload for line in lines]
    _check_constants(source, workloads[0], str(file))
    return Problem(
        name=problem_name(path if path.is_dir() else path.with_suffix("")),
        title=definition.name,
        level=0,
        description=definition.description,
        origin=Origin.DEFINITION,
        path=str(path),
        source=source,
        sha256=hashlib.sha256(data + workload_data).hexdigest(),
        cases=cases_from(workloads),
        precision=_precision(definition),
        formats=_formats(definition),
        benchmark=BenchmarkRule.FLASHINFER_BENCH if lines[0].is_trace else BenchmarkRule.SOL_EXECBENCH,
    )


def _files(path: Path) -> tuple[Path, Path]:
    """Return the files of a definition and of the workloads."""
    if path.suffix != ".json":
        return path / DEFINITION_FILE, path / WORKLOAD_FILE
    depth = max(number for number, part in enumerate(path.parts[:-1]) if part == "definitions")
    return path, Path(*path.parts[:depth], "workloads", *path.parts[depth + 1 :]).with_suffix(".jsonl")


def _check_constants(source: str, workload: Workload, where: str) -> None:
    """Check that the text has each axis once: the definition's own code may use the name."""
    constants = read_reference(source, where).constants
    taken = [name for name in workload.axes if name not in constants]
    if taken:
        raise ProblemError(f"{where}: reference: {taken[0]} names an axis or input, and the code sets it too")


def _precision(definition: Definition) -> Precision:
    """Return the arithmetic of the narrowest tensors, the operands of tensor cores."""
    tensors = [spec for spec in [*definition.inputs.values(), *definition.outputs.values()] if spec.shape is not None]
    dtypes = {spec.dtype for spec in tensors}
    if DType.BFLOAT16 in dtypes:
        return Precision.BF16
    return Precision.FP16 if DType.FLOAT16 in dtypes else Precision.FP32


def _formats(definition: Definition) -> Formats:
    packed = {name for name, spec in definition.inputs.items() if spec.dtype.is_packed and spec.shape is not None}
    return Formats(inputs=dict.fromkeys(sorted(packed), ElementFormat.NVFP4))


def cases_from(workloads: Sequence[Workload]) -> dict[str, Case]:
    """Return the cases of a problem: the smallest and the largest workload as sizes, and each by uuid.

    A uuid without the form of a case's name is replaced by the number of the workload, from 0.
    """
    by_size = sorted(workloads, key=lambda workload: workload.elements)
    cases = [_case(SizeName.FULL, by_size[-1]), _case(SizeName.SMALL, by_size[0])]
    for number, workload in enumerate(workloads):
        is_name = _CASE_NAME.fullmatch(workload.uuid) is not None and workload.uuid not in RESERVED
        cases.append(_case(workload.uuid if is_name else f"case_{number}", workload))
    return {case.name: case for case in cases}


def _case(name: str, workload: Workload) -> Case:
    tolerance = {} if workload.tolerance is None else msgspec.to_builtins(workload.tolerance)
    return Case(name=name, axes=workload.axes, weight=workload.weight, uuid=workload.uuid, tolerance=tolerance)


_OF_KERNELBENCH_COM = "shapes.py"
_OF_ATREX = "shapes.json"
SHAPES_FILES = (_OF_KERNELBENCH_COM, _OF_ATREX, TASK_FILE)
"""Files with shapes; one of them and a reference mark a folder of a problem."""
_PRECISIONS = {"bf16": Precision.BF16, "bfloat16": Precision.BF16, "fp16": Precision.FP16, "float16": Precision.FP16}
_LAST_WORD = re.compile(r"(bf16|fp16)$")
_ATREX_TOLERANCE = MatchedRatio(max_atol=1e-2, max_rtol=5e-2, required_matched_ratio=1.0)


class _AtrexShape(Table, frozen=True, kw_only=True):
    init_kwargs: dict[str, Any] | None
    input_kwargs: dict[str, Any] | None


def has_shapes(path: Path) -> bool:
    """Return whether a folder has a reference and a list of shapes."""
    return os.path.lexists(path / REFERENCE_FILE) and any(os.path.lexists(path / name) for name in SHAPES_FILES)


def read_shapes_problem(folder: Path, found_in: Path | None = None) -> Problem:
    """Read a folder with shapes. The smallest shape is the size small, the largest the size full.

    Raises:
        ProblemError: a file is missing or broken; the message names file and key.
    """
    readers = {TASK_FILE: read_task, _OF_ATREX: _atrex, _OF_KERNELBENCH_COM: _kernelbench_com}
    text = next(read for file, read in readers.items() if os.path.lexists(folder / file))(folder, found_in)
    reference = read_reference(text.source, str(folder / REFERENCE_FILE))
    return Problem(
        name=problem_name(folder),
        title=folder.resolve().name.replace("_", " "),
        level=0,
        description=" ".join((text.description or reference.docstring).partition("\n\n")[0].split()),
        origin=Origin.DEFINITION,
        path=str(folder),
        source=text.source,
        sha256=hashlib.sha256(text.data).hexdigest(),
        cases=cases_from(text.workloads),
        precision=text.precision,
        check=text.check,
        benchmark=text.benchmark,
    )


def _kernelbench_com(folder: Path, found_in: Path | None) -> ShapesText:
    file, shapes_file = folder / REFERENCE_FILE, folder / _OF_KERNELBENCH_COM
    data, shapes_data = read_bytes(file, found_in), read_bytes(shapes_file, found_in)
    source = decode(data, file)
    constants = read_reference(source, str(file)).constants
    workloads = []
    for number, shape in enumerate(_shapes(decode(shapes_data, shapes_file), str(shapes_file))):
        where = f"{shapes_file}: SHAPES[{number}]"
        # The harness sets constants in upper case, too.
        names = {name: name if name in constants else name.upper() for name in shape}
        for name in shape:
            if names[name] not in constants:
                raise ProblemError(f"{where}: {name} is no constant of {REFERENCE_FILE}; {one_of(constants)}")
        workloads.append(workload_of(str(number), {names[name]: value for name, value in shape.items()}))
    settings = folder / "problem.yaml"
    has_settings = os.path.lexists(settings)
    said = parsed_yaml(decode(read_bytes(settings, found_in), settings), str(settings)) if has_settings else {}
    last_word = _LAST_WORD.search(str(said.get("precision") if isinstance(said, dict) else ""))
    precision = _PRECISIONS.get(last_word[0] if last_word else "", Precision.FP32)
    return ShapesText(source, workloads, precision, BenchmarkRule.KERNELBENCH, data + shapes_data)


def _shapes(text: str, where: str) -> list[dict[str, Constant]]:
    """Return the list `SHAPES` of literals, and of names of earlier literals. No code is run."""
    try:
        tree = ast.parse(text)
        named = {name: literal.value for name, literal in module_literals(tree)}
        values = [node.value for node in tree.body if isinstance(node, ast.Assign) and _names(node) == ["SHAPES"]]
        shapes = [_resolved(item, named) for item in getattr(values[-1], "elts", [])] if values else []
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ProblemError(f"{where}: SHAPES is no list of dicts of literals: {error}") from error
    if not shapes or len(shapes) > MOST_SHAPES:
        raise ProblemError(f"{where}: SHAPES = [{{…}}] with 1 to {MOST_SHAPES} dicts is required")
    return shapes


def _names(node: ast.Assign) -> list[str]:
    return [target.id for target in node.targets if isinstance(target, ast.Name)]


def _resolved(node: ast.expr, named: Mapping[str, Constant]) -> dict[str, Constant]:
    """Return a dict of literals and names. Raises ValueError for any other expression."""
    pairs = zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ()
    found: dict[str, Constant] = {}
    for key, value in pairs:
        name = "**" if key is None else str(ast.literal_eval(key))
        found[name] = constant_of(named.get(value.id) if isinstance(value, ast.Name) else ast.literal_eval(value))
    if not found:
        raise ValueError(f"line {node.lineno} is no dict with a shape")
    return found


def _atrex(folder: Path, found_in: Path | None) -> ShapesText:
    files = [folder / name for name in (REFERENCE_FILE, "input.py", _OF_ATREX)]
    data = [read_bytes(file, found_in) for file in files]
    reference, inputs, shapes = (decode(each, file) for each, file in zip(data, files, strict=True))
    where, metadata = str(files[2]), _metadata(folder, found_in)
    value = parsed(shapes, where)
    if not isinstance(value, dict):
        raise ProblemError(f"{where}: not an object with a shape for each key")
    given = {name: table(each, _AtrexShape, where, name) for name, each in value.items()}
    if not given or len(given) > MOST_SHAPES:
        raise ProblemError(f"{where}: 1 to {MOST_SHAPES} shapes are required")
    init = dict.fromkeys(key for shape in given.values() for key in shape.init_kwargs or {})
    inner = dict.fromkeys(key for shape in given.values() for key in shape.input_kwargs or {})
    usable_names([*init, *inner], where)
    defaults = _defaults(parse(reference, str(files[0])))
    workloads = []
    for name, shape in given.items():
        values = {**defaults, **(shape.init_kwargs or {})}, shape.input_kwargs or {}
        at = f"{where}: {label(name, 'init_kwargs')}", f"{where}: {label(name, 'input_kwargs')}"
        axes = {f"init_{key}": checked_constant(values[0].get(key), f"{at[0]}.{key}") for key in init}
        axes |= {key: checked_constant(values[1].get(key), f"{at[1]}.{key}") for key in inner}
        facts = metadata.get("shapes", {}).get(name)
        count = facts.get("call_count") if isinstance(facts, dict) else None
        weight = float(count) if isinstance(count, int) and count > 0 else 1.0
        workloads.append(workload_of(name, axes, _ATREX_TOLERANCE, weight))
    lines = [
        *(f"{name} = {value!r}" for name, value in workloads[0].axes.items()),
        "",
        "def get_inputs():",
        f"    return _make_inputs({', '.join(f'{key}={key}' for key in inner)})",
        "",
        "def get_init_inputs():",
        f"    return {{{', '.join(f'{key!r}: init_{key}' for key in init)}}}",
    ]
    source = f"{reference.rstrip()}\n\n{inputs.rstrip()}\n\n# From here on written by Warpgrade.\n" + "\n".join(lines)
    missing = [name for name in workloads[0].axes if name not in read_reference(source, where).constants]
    if missing:
        raise ProblemError(f"{where}: {missing[0]} is a name of the reference's own")
    precision = _PRECISIONS.get(str(metadata.get("dtype")), Precision.FP32)
    return ShapesText(f"{source}\n", workloads, precision, BenchmarkRule.ATREX, b"".join(data))


def _metadata(folder: Path, found_in: Path | None) -> dict[str, Any]:
    file = folder / "metadata.json"
    value = parsed(decode(read_bytes(file, found_in), file), str(file)) if os.path.lexists(file) else {}
    return value if isinstance(value, dict) and isinstance(value.get("shapes", {}), dict) else {}


def _defaults(tree: ast.Module) -> dict[str, object]:
    """Return the literal defaults of the constructor of `Model`."""
    models = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Model")
    methods = (node for model in models for node in model.body if isinstance(node, ast.FunctionDef))
    return next((literal_defaults(node) for node in methods if node.name == "__init__"), {})
