"""Definitions of SOL-ExecBench and FlashInfer-Trace as problems, used in place.

SOL-ExecBench has a folder with `definition.json` and `workload.jsonl`; FlashInfer-Trace has files
`definitions/…/NAME.json` and `workloads/…/NAME.jsonl`.
"""

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from evaluator.catalog.origin import Origin
from evaluator.catalog.readers.definition import Definition, DType, Workload, read_definition, read_workloads
from evaluator.catalog.readers.module_text import module_text
from evaluator.catalog.reference import read_reference
from evaluator.catalog.text import decode, read_bytes
from evaluator.catalog.workload import RESERVED, WORKLOAD_FILE
from evaluator.errors import ProblemError
from evaluator.records import (
    BenchmarkRule,
    Case,
    ElementFormat,
    Formats,
    Mode,
    Precision,
    Problem,
    SizeName,
    ToleranceOverride,
)

DEFINITION_FILE = "definition.json"
_CASE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}")
_NO_LEVEL = 0


def is_definition(path: Path) -> bool:
    """Return whether a path names a folder with a definition, or a definition of FlashInfer-Trace."""
    if path.suffix == ".json":
        return "definitions" in path.parts[:-1] and path.is_file()
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
    data, workload_data = read_bytes(file, found_in), read_bytes(workload_file, found_in)
    definition = read_definition(decode(data, file), str(file))
    lines = read_workloads(decode(workload_data, workload_file), definition, str(workload_file))
    source = module_text(definition, lines[0], str(file.parent), str(file))
    workloads = [line.workload for line in lines]
    _check_constants(source, workloads[0], str(file))
    folder = path if path.is_dir() else path.with_suffix("")
    return Problem(
        name=folder.name if folder.name not in {"", ".."} else folder.resolve().name,
        title=definition.name,
        level=_NO_LEVEL,
        description=definition.description,
        origin=Origin.DEFINITION,
        path=str(path),
        source=source,
        sha256=hashlib.sha256(data + workload_data).hexdigest(),
        cases=cases_from(workloads),
        precision=_precision(definition),
        mode=Mode.TRAIN,
        backward=False,
        tolerance=ToleranceOverride(),
        split={},
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
