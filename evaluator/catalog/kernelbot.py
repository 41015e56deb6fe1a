"""The form of KernelBot's tasks (GPU MODE): `task.yml` with tests and benchmarks, and `reference.py`.

`reference.py` defines `generate_input(**case)`, `ref_kernel(data)` and `check_implementation(data, output)`, and
imports modules of the task, such as `utils`. The reference in KernelBench's form contains the texts of all modules.
"""

import ast
import builtins
import os
import re
import sys
from collections.abc import Iterator, Mapping
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated, Any

import msgspec

from evaluator.catalog.definition import Workload
from evaluator.catalog.reference import parse, read_reference
from evaluator.catalog.shapes import MOST_SHAPES, ShapesText, checked_constant, literal_defaults, workload_of
from evaluator.catalog.strict import Table, label, parsed_yaml, table, usable_names
from evaluator.catalog.text import decode, read_bytes
from evaluator.errors import ProblemError
from evaluator.records import BenchmarkRule, CheckRule, Precision

TASK_FILE = "task.yml"
_REFERENCE = "reference"
_SUBMISSION = "@SUBMISSION@"
_NO_MODULES = ("submission.py", "eval.py")
_INPUT, _KERNEL, _CHECK = "generate_input", "ref_kernel", "check_implementation"
_SEED = "seed"
_MOST_FILES = 30
_TAKEN_MODULES = ("evaluator", "model", "numpy", "torch", "warpgrade", "warpgrade_entry")
_IMPORT = re.compile(r"^[ \t]*(?:from|import)[ \t]+(\w+)", re.MULTILINE)
_FILE_NAME = r"^[A-Za-z0-9_@./ +-]{1,1000}$"
_HEAD = """\
import sys
from types import ModuleType

import torch
from torch.overrides import TorchFunctionMode

# The modules of the task, then Warpgrade's text in KernelBench's form.

def _module(name, text):
    module = sys.modules[name] = ModuleType(name)
    exec(compile(text, {folder!r} + f"/{{name}}.py", "exec"), module.__dict__)
    return module


"""
_MODEL = """\

def _mapped(value, change):
    if isinstance(value, list | tuple):
        items = [_mapped(item, change) for item in value]
        return tuple(items) if isinstance(value, tuple) else items
    return change(value)


def as_given(data):
    # Outputs of the caller arrive as shapes, and are made anew in each call; formats without arithmetic as bytes.
    tensors = []
    _mapped(data, lambda each: tensors.append(each) if isinstance(each, torch.Tensor) else None)
    is_wide = any(each.dtype == torch.float64 for each in tensors)

    def made(each):
        if not isinstance(each, dict) or set(each) not in ({{"empty", "dtype"}}, {{"bytes", "dtype"}}):
            return each
        dtype = getattr(torch, each["dtype"])
        if "bytes" in each:
            return each["bytes"].view(dtype)
        dtype = torch.float64 if is_wide and dtype.is_floating_point else dtype
        return torch.empty(each["empty"], dtype=dtype, device=tensors[0].device if tensors else None)

    return _mapped(data, made)


class Model(torch.nn.Module):
    def forward(self, data):
        last = data[-1] if isinstance(data, tuple) else None
        data = as_given(data)
        result = _reference.ref_kernel(data)
        is_output = isinstance(last, dict) and "empty" in last and isinstance(result, torch.Tensor)
        return result.to(data[-1].dtype) if is_output and result.shape == data[-1].shape else result


class _Empty(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {{}}))
        if func in (torch.empty, torch.empty_like):
            self.tensors.append(made)
        return made


def get_inputs():
    with _Empty() as mode:
        mode.tensors = []
        data = _reference.generate_input({arguments})
    outputs = {{id(each) for each in mode.tensors if each._version == 0}}

    def sent(each):
        if not isinstance(each, torch.Tensor):
            return each
        dtype = str(each.dtype)[len("torch.") :]
        if id(each) in outputs:
            return {{"empty": list(each.shape), "dtype": dtype}}
        return {{"bytes": each.view(torch.uint8), "dtype": dtype}} if dtype in {opaque!r} else each

    return [_mapped(data, sent)]


def get_init_inputs():
    return []
"""
_OPAQUE = ("float4_e2m1fn_x2", "float8_e4m3fnuz", "float8_e5m2fnuz")
"""Formats in which PyTorch neither compares nor converts (`problem_code`)."""
_NEW_SEED = f'{_SEED}=int(torch.randint(2**24, (), device="cpu"))'
"""Tasks add the seed to values in fp32. Nothing else limits the seeds: 2**24 are too many for a table of answers."""
_OWN_CHECK = f"""\


def check(inputs, outputs):
    found = _reference.{_CHECK}(as_given(inputs[0]), outputs)
    is_pair = isinstance(found, tuple) and len(found) == 2
    if not is_pair and found is not None and not isinstance(found, str):
        raise TypeError("{_CHECK} returns neither a message nor a pair of a bool and a message")
    accepts, message = found if is_pair else (not found, found)
    return None if accepts else str(message or "{_CHECK} refuses the output")
"""


class _Language(StrEnum):
    PY = "py"
    CU = "cu"


class _Ranking(StrEnum):
    LAST = "last"
    MEAN = "mean"
    GEOM = "geom"


class _File(Table, frozen=True, kw_only=True):
    name: Annotated[str, msgspec.Meta(pattern=_FILE_NAME)]
    source: Annotated[str, msgspec.Meta(pattern=_FILE_NAME)]


class _Config(Table, frozen=True, kw_only=True):
    main: str | None = None
    sources: list[str] = []
    include_dirs: list[str] = []
    defines: dict[str, Any] = {}
    compile_flags: list[str] = []


class _TaskFile(Table, frozen=True, kw_only=True):
    """A task.yml. Times, ranking and GPUs have no effect on a grade."""

    files: list[dict[str, Any]]
    tests: list[dict[str, Any]]
    benchmarks: list[dict[str, Any]] = []
    lang: _Language = _Language.PY
    config: dict[str, Any] = {}
    description: str | None = None
    templates: dict[str, str] = {}
    libraries: list[str] = []
    test_timeout: float | None = None
    benchmark_timeout: float | None = None
    ranked_timeout: float | None = None
    ranking_by: _Ranking = _Ranking.LAST
    gpus: list[str] = []
    multi_gpu: bool = False
    seed: int | None = None


def read_task(folder: Path, found_in: Path | None = None) -> ShapesText:
    """Read the task in `folder`; no code is run. `found_in` is passed to `read_bytes`.

    Raises:
        ProblemError: a file is missing or broken, or the task is of a kind that is not read; the message names file and
            key.
    """
    file = folder / TASK_FILE
    data, where = read_bytes(file, found_in), str(file)
    task = table(parsed_yaml(decode(data, file), where), _TaskFile, where)
    config = table(task.config, _Config, where, "config")
    if task.lang is not _Language.PY or config.sources:
        hint = "for CUDA, write the reference in Python, and submit load_inline: see `warpgrade new problem`"
        raise ProblemError(f"{where}: a task whose submissions are C++ or CUDA files is not read", hint=hint)
    if task.multi_gpu:
        hint = "a grade has one GPU: choose a task without `multi_gpu`"
        raise ProblemError(f"{where}: multi_gpu: a task for several GPUs is not read", hint=hint)
    files = [table(each, _File, where, f"files[{number}]") for number, each in enumerate(task.files)]
    texts = _modules(folder, files, where, found_in)
    functions, uses = _functions(texts[_REFERENCE], str(folder / "reference.py"))
    workloads = list(_workloads(task, literal_defaults(functions[_INPUT]), where))
    segments = [ast.unparse(functions[name]) for name in (_INPUT, _KERNEL)]
    has_check = _CHECK in uses
    has_seed = any(_SEED in case for case in [*task.tests, *task.benchmarks])
    source = _source(folder, texts, workloads[0], has_seed=has_seed, has_check=has_check)
    constants = read_reference(source, where).constants
    if taken := [name for name in workloads[0].axes if name not in constants or hasattr(builtins, name)]:
        raise ProblemError(
            f"{where}: {taken[0]!r} is a name of Python or of Warpgrade's text around the task: rename it"
        )
    return ShapesText(
        source=source,
        workloads=workloads,
        precision=_precision(" ".join(segments)),
        benchmark=BenchmarkRule.KERNELBOT if has_check else BenchmarkRule.KERNELBENCH,
        data=data + "".join(texts.values()).encode(),
        description=task.description,
        # A check without the reference is about properties of an answer that is not unique, as of a factorization.
        check=CheckRule.INSTEAD if has_check and _KERNEL not in uses else None,
    )


def _modules(folder: Path, files: list[_File], where: str, found_in: Path | None) -> dict[str, str]:
    """Return the texts of the task's modules by name, in the order of their imports."""
    names = {each.name: each.source for each in files if each.source != _SUBMISSION and each.name not in _NO_MODULES}
    modules = {name.removesuffix(".py"): source for name, source in names.items() if name.endswith(".py")}
    if _REFERENCE not in modules or len(modules) > _MOST_FILES:
        raise ProblemError(f"{where}: files: reference.py and at most {_MOST_FILES} modules are required")
    usable_names(modules, where)
    if taken := sorted({*modules} & {*sys.stdlib_module_names, *_TAKEN_MODULES}):
        raise ProblemError(f"{where}: files: {taken[0]}.py has the name of another module: rename it")
    home = Path(os.path.abspath(folder))  # noqa: PTH100 - links stay
    texts = {}
    for name, source in modules.items():
        path = Path(os.path.normpath(home / source))
        inside = None if found_in is None else Path(os.path.abspath(found_in))  # noqa: PTH100
        # Tasks share modules of the folders above: ../utils.py, ../../pmpp_v2/utils.py.
        root = inside if inside is not None and path.is_relative_to(inside) else home.parent.parent
        if path.suffix != ".py" or not path.is_relative_to(root):
            message = f"{where}: files: {source[:80]!r} is no Python file of the task or of two folders above"
            raise ProblemError(message, hint="copy the file into the task's folder")
        texts[name] = decode(read_bytes(path, root), path)
    return _in_order(texts, where)


def _in_order(texts: Mapping[str, str], where: str) -> dict[str, str]:
    """Return the modules in an order in which each comes after the modules that it imports."""
    imported = {name: set(_IMPORT.findall(text)) & (texts.keys() - {name}) for name, text in texts.items()}
    try:
        return {name: texts[name] for name in TopologicalSorter(imported).static_order()}
    except CycleError as error:
        raise ProblemError(f"{where}: files: modules import each other: {', '.join(error.args[1])}") from error


def _functions(text: str, where: str) -> tuple[dict[str, ast.FunctionDef], set[str]]:
    """Return the top-level functions of a reference, and all used names; the check counts as used if defined."""
    tree = parse(text, where)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    missing = [name for name in (_INPUT, _KERNEL) if name not in functions]
    if missing:
        hint = f"a task's reference defines {_INPUT}(**case) and {_KERNEL}(data)"
        raise ProblemError(f"{where}: does not define {' or '.join(missing)}", hint=hint)
    uses = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return functions, uses | ({_CHECK} & functions.keys())


def _workloads(task: _TaskFile, defaults: Mapping[str, object], where: str) -> Iterator[Workload]:
    """Yield the tests and benchmarks, without their seeds; an omitted argument has the default."""
    cases = {f"test_{number}": case for number, case in enumerate(task.tests)}
    cases |= {f"benchmark_{number}": case for number, case in enumerate(task.benchmarks)}
    if not cases or len(cases) > MOST_SHAPES:
        raise ProblemError(f"{where}: 1 to {MOST_SHAPES} tests and benchmarks are required")
    names = [name for name in dict.fromkeys(key for case in cases.values() for key in case) if name != _SEED]
    usable_names(names, where)
    for place, case in cases.items():
        values = {**defaults, **case}
        if missing := [name for name in names if name not in values]:
            message = (
                f"{where}: {label(place, missing[0])}: required, since other cases have it and there is no default"
            )
            raise ProblemError(message)
        axes = {name: checked_constant(values[name], f"{where}: {label(place, name)}") for name in names}
        yield workload_of(place, axes)


def _precision(text: str) -> Precision:
    """Return the arithmetic of the narrowest dtype in the text of the functions."""
    if "torch.bfloat16" in text:
        return Precision.BF16
    return Precision.FP16 if "torch.float16" in text or "torch.half" in text else Precision.FP32


def _source(folder: Path, texts: Mapping[str, str], first: Workload, *, has_seed: bool, has_check: bool) -> str:
    arguments = [f"{name}={name}" for name in first.axes] + [_NEW_SEED] * has_seed
    lines = [
        f"{'_reference = ' * (name == _REFERENCE)}_module({name!r}, {_literal(text)})\n" for name, text in texts.items()
    ]
    lines += ["\n", *(f"{name} = {value!r}\n" for name, value in first.axes.items()), "\n"]
    own = _MODEL.format(arguments=", ".join(arguments), opaque=_OPAQUE) + _OWN_CHECK * has_check
    return _HEAD.format(folder=str(folder)) + "".join(lines) + own


def _literal(text: str) -> str:
    """Return a text as a literal of Python, on several lines where possible, with a line end."""
    text = text if text.endswith("\n") else f"{text}\n"
    is_raw = "'''" not in text and "\r" not in text
    return f"r'''{text}'''" if is_raw else repr(text)
