"""Solutions of SOL-ExecBench and FlashInfer-Trace (`solution.json`) as submissions of several files. Nothing is run.

The entry of the submission is a `ModelNew` that calls the solution's function. A function in destination-passing style
gets new, uninitialized outputs from the module `model`, whose text the definition gives.
"""

from enum import StrEnum
from typing import Annotated, Any

import msgspec

from evaluator.catalog.strict import Table, parsed, table
from evaluator.errors import ProblemError
from evaluator.protocol.submission_files import MANIFEST, BadFiles, joined

_WHERE = "solution.json"
_ENTRY = "warpgrade_entry.py"
_EXTENSION = "solution_kernels"
_PYTHON = ".py"
_Text = Annotated[str, msgspec.Meta(min_length=1)]
_IMPORT = """\
import model
import torch

from {module} import {function} as entry


class ModelNew(torch.nn.Module):
    def forward(self, *inputs):
        inputs = model.as_defined(*inputs)
"""
_DESTINATIONS = """\
        outputs = model.empty_outputs(inputs)
        entry(*inputs, *outputs)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)
"""
_RESULT = """\
        return model.ordered(entry(*inputs))
"""


class _Binding(StrEnum):
    TORCH = "torch"
    TVM_FFI = "tvm-ffi"


class _CompileOptions(Table, frozen=True, kw_only=True):
    """Flags, with the defaults of SOL-ExecBench."""

    cflags: tuple[str, ...] = ()
    cuda_cflags: tuple[str, ...] = ("-O3", "--use_fast_math")
    ld_flags: tuple[str, ...] = ("-lcuda",)


class _Spec(Table, frozen=True, kw_only=True):
    """SOL-ExecBench has `languages` and `compile_options`, FlashInfer-Trace `language`."""

    entry_point: _Text
    languages: list[str] = []
    language: str | None = None
    target_hardware: list[str] = []
    dependencies: list[str] = []
    destination_passing_style: bool = True
    binding: _Binding | None = None
    compile_options: dict[str, Any] | None = None


class _Source(Table, frozen=True, kw_only=True):
    path: _Text
    content: str


class _Solution(Table, frozen=True, kw_only=True):
    name: _Text
    definition: _Text
    spec: dict[str, Any]
    sources: list[dict[str, Any]]
    author: str | None = None
    description: str | None = None


def is_solution(text: str) -> bool:
    """Return whether a text is the JSON object of a solution, maybe with faults."""
    try:
        value = parsed(text, _WHERE)
    except ProblemError:
        return False
    return isinstance(value, dict) and "spec" in value and "sources" in value


def solution_text(text: str) -> str:
    """Return a solution as the text of a submission of several files.

    Raises:
        BadFiles: a key is unknown or missing, a path is not allowed, or Warpgrade cannot call the solution.
    """
    try:
        solution = table(parsed(text, _WHERE), _Solution, _WHERE)
        spec = table(solution.spec, _Spec, _WHERE, "spec")
        options = table(spec.compile_options or {}, _CompileOptions, _WHERE, "spec.compile_options")
        sources = [table(each, _Source, _WHERE, f"sources[{n}]") for n, each in enumerate(solution.sources)]
    except ProblemError as error:
        raise BadFiles(error.message) from error
    file, mark, function = spec.entry_point.partition("::")
    if not mark or not function.isidentifier():
        raise BadFiles(f"{_WHERE}: spec.entry_point is {spec.entry_point[:80]!r}; the form is 'file.py::function'")
    if file not in [source.path for source in sources]:
        raise BadFiles(f"{_WHERE}: spec.entry_point names {file[:80]!r}, which is not among the sources")
    files = [(source.path, source.content) for source in sources]
    if file.endswith(_PYTHON):
        module, manifest = file.removesuffix(_PYTHON).replace("/", "."), _manifest()
        if not all(part.isidentifier() for part in module.split(".")):
            raise BadFiles(f"{_WHERE}: spec.entry_point: {file[:80]!r} is not the path of a module of Python")
    else:
        if spec.binding is _Binding.TVM_FFI or (spec.binding is None and spec.language is not None):
            raise BadFiles(f"{_WHERE}: spec.binding: C++ bound by tvm-ffi is not supported; bind it by torch")
        module, manifest = _EXTENSION, _manifest(options)
    entry = _IMPORT.format(module=module, function=function)
    entry += _DESTINATIONS if spec.destination_passing_style else _RESULT
    return joined([(MANIFEST, manifest), (_ENTRY, entry), *files])


def _manifest(options: _CompileOptions | None = None) -> str:
    """Return the manifest; with flags, it declares an extension of all C++ and CUDA sources."""
    lines = [f"entry = {_quoted(_ENTRY)}"]
    if options is not None:
        flags = {
            "extra_cflags": options.cflags,
            "extra_cuda_cflags": options.cuda_cflags,
            "extra_ldflags": options.ld_flags,
        }
        lines += ["[extension]", f"name = {_quoted(_EXTENSION)}"]
        lines += [f"{key} = [{', '.join(map(_quoted, values))}]" for key, values in flags.items() if values]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """Return a text as a string of TOML: JSON's escapes are TOML's."""
    return msgspec.json.encode(text).decode()
