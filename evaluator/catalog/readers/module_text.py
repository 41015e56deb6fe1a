"""A definition as a reference in KernelBench's form: the text of `run`, with Model and get_inputs.

The definition's text comes first, with its own line numbers. Axes that vary and scalars follow as constants, so that
other workloads replace the literals.
"""

import ast
import re
from collections.abc import Iterator

from evaluator.catalog.readers.definition import Definition, DType, InputKind, InputSource, TensorSpec, WorkloadLine
from evaluator.catalog.readers.formula import one_line
from evaluator.catalog.readers.random_values import random_value, shape_text
from evaluator.errors import ProblemError

_RUN = "run"
_MARK = "# From here on written by Warpgrade."
_OWN = frozenset(
    {
        "torch",
        "_run",
        "_make_inputs",
        "_folder",
        "as_defined",
        "ordered",
        "empty_outputs",
        "Model",
        "get_inputs",
        "get_init_inputs",
    }
)
"""Names of the text below the definition's."""


def module_text(definition: Definition, line: WorkloadLine, folder: str, where: str) -> str:
    """Return the text of a reference, with the constants of one workload. Paths of data are relative to `folder`.

    Raises:
        ProblemError: the definition's text is not Python, defines no `run`, or needs a name of its own for something
            else.
    """
    tree = _parsed(definition.reference, where)
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    for needed in filter(None, (_RUN, definition.entrypoint)):
        if needed not in defined:
            raise ProblemError(f"{where}: reference: defines no function {needed[:80]!r} at its top level")
    taken = [*({"Model", "get_init_inputs"} & defined)]
    taken += [name for name in [*definition.axes, *definition.inputs, *line.workload.axes] if name in _OWN]
    if taken:
        raise ProblemError(f"{where}: {taken[0]!r} is a name that Warpgrade adds to the reference: rename it")
    own = "\n".join(_own_lines(definition, line, folder))
    return f"{_without_main(definition.reference, tree)}\n\n{_MARK}\n{own}\n"


def _parsed(text: str, where: str) -> ast.Module:
    try:
        return ast.parse(text)
    except SyntaxError as error:
        raise ProblemError(f"{where}: reference: line {error.lineno or 0}: not Python: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise ProblemError(f"{where}: reference: not Python: {error}") from error


def _without_main(text: str, tree: ast.Module) -> str:
    """Return the text with comments in place of `if __name__ == "__main__"`: the block may use an axis's name."""
    lines = re.split(r"\r\n|\r|\n", text)
    for node in tree.body:
        if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test):
            for number in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[number] = f"# {lines[number]}".rstrip()
    return "\n".join(lines).rstrip()


def _own_lines(definition: Definition, line: WorkloadLine, folder: str) -> Iterator[str]:
    yield from ("import torch", "", f"_run = {_RUN}")
    if any(source.type is InputKind.SAFETENSORS for source in line.sources.values()):
        yield f"_folder = {folder!r}"
    if definition.entrypoint is not None:
        yield f"_make_inputs = {definition.entrypoint}"
    yield ""
    yield from (f"{name} = {value!r}" for name, value in line.workload.axes.items())
    yield from (f"{name} = {axis.value}" for name, axis in definition.axes.items() if axis.value is not None)
    yield from (
        f"{name} = {one_line(axis.expression)}" for name, axis in definition.axes.items() if axis.expression is not None
    )
    yield from _calls(definition)
    yield from ("", "", "def get_inputs():")
    yield from _inputs(definition, line)
    yield from ("", "", "def get_init_inputs():", "    return []")


def _calls(definition: Definition) -> Iterator[str]:
    """Yield Model, and functions for the `ModelNew` of a solution.

    Outside of `run`, packed elements are bytes: PyTorch cannot compute in the dtype.
    """
    packed = {name for name, spec in definition.inputs.items() if spec.dtype.is_packed and spec.shape is not None}
    view = f".view(torch.{DType.FLOAT4_E2M1FN_X2})"
    inputs = "".join(f"{name}{view if name in packed else ''}, " for name in definition.inputs)
    outputs = ", ".join(f"result[{name!r}]" for name in definition.outputs)
    named = f"({outputs})" if len(definition.outputs) > 1 else outputs
    names = ", ".join(definition.inputs)
    yield from ("", "", f"def as_defined({names}):", f"    return ({inputs.rstrip()})")
    yield from ("", "", "def ordered(result):", f"    return {named} if isinstance(result, dict) else result")
    yield from ("", "", "def empty_outputs(inputs):")
    yield "    device = next((each.device for each in inputs if isinstance(each, torch.Tensor)), None)"
    yield "    return ["
    for name, spec in definition.outputs.items():
        yield f"        torch.empty({shape_text(spec)}, dtype=torch.{spec.dtype}, device=device),  # {name[:80]!r}"
    yield "    ]"
    yield from ("", "", "class Model(torch.nn.Module):", f"    def forward({', '.join(['self', *definition.inputs])}):")
    yield f"        return ordered(_run(*as_defined({names})))"


def _inputs(definition: Definition, line: WorkloadLine) -> Iterator[str]:
    kinds = {source.type for source in line.sources.values()}
    if InputKind.CUSTOM in kinds:
        scalars = [name for name, source in line.sources.items() if source.type is InputKind.SCALAR]
        further = [name for name in line.variables if name not in definition.axes]
        names = [*definition.axes, *further, *scalars]
        values = ", ".join(f"{name!r}: {name}" for name in names)
        yield f"    made = _make_inputs({{{values}}}, torch.get_default_device())"
    if InputKind.SAFETENSORS in kinds:
        yield from ("    from evaluator.tensor_files import stored_tensor", "")
    yield "    return ["
    for name, spec in definition.inputs.items():
        yield f"        {_value(name, spec, line.sources[name])},  # {name}"
    yield "    ]"


def _value(name: str, spec: TensorSpec, source: InputSource) -> str:
    as_bytes = ".view(torch.uint8)" if spec.dtype.is_packed and spec.shape is not None else ""
    match source.type:
        case InputKind.SCALAR:
            return name
        case InputKind.CUSTOM:
            return f"made[{name!r}]{as_bytes}"
        case InputKind.SAFETENSORS:
            return f"stored_tensor(_folder, {name}_file, {name}_key, {shape_text(spec)}, torch.{spec.dtype}){as_bytes}"
        case InputKind.RANDOM:
            return random_value(name, spec)
