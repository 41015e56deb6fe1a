"""A definition as a reference in KernelBench's form: the text of `run`, with Model and get_inputs.

The definition's text comes first, with its own line numbers. Axes that vary and scalars follow as constants, so that
other workloads replace the literals.

`random` inputs are drawn by dtype, and floating-point ones by name and description, as in SOL-ExecBench's harness
(`core/bench/io.py` of NVIDIA/SOL-ExecBench): a variance drawn from a normal distribution would be negative, and a
rotation by such cosines no rotation.
"""

import ast
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from evaluator.catalog.definition import Definition, DType, InputKind, InputSource, TensorSpec, WorkloadLine
from evaluator.catalog.formula import one_line
from evaluator.catalog.reference import parse
from evaluator.errors import ProblemError

_PLAIN = (DType.FLOAT64, DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16)
_WHOLE = {DType.INT8: (-128, 128), DType.INT16: (-1024, 1024), DType.INT32: (-1024, 1024), DType.INT64: (-1024, 1024)}
_SQUARE = 2


class _Input(NamedTuple):
    name: str
    description: str
    shape: list[str]

    @property
    def is_causal_mask(self) -> bool:
        """Whether the input is the additive mask of causal attention."""
        if len(self.shape) < _SQUARE or self.shape[-1] != self.shape[-2]:
            return False
        said = "attention mask" in self.description and "causal" in self.description
        return said or self.name in ("attention_mask", "causal_mask")

    @property
    def is_binary_mask(self) -> bool:
        """Whether the input is a mask of zeros and ones in floating point."""
        if self.name in ("x_mask", "text_mask", "aspect_ratio_mask", "drop_mask", "attention_mask"):
            return True
        return self.name.endswith("_mask") and any(word in self.description for word in _OF_BINARY)

    @property
    def is_softmax(self) -> bool:
        """Whether the input is the result of a softmax."""
        said = "softmax" in self.description and "output" in self.description
        return said or self.name in ("attn_weights", "attention_weights", "routing_weights")


_OF_BINARY = ("binary", "{0, 1}", "0 or 1", "1.0 for valid", "0.0 for masked")


def _matches(pattern: str) -> Callable[[_Input], bool]:
    compiled = re.compile(pattern)
    return lambda each: compiled.fullmatch(each.name) is not None


_BY_NAME: tuple[tuple[Callable[[_Input], bool], str], ...] = (
    (_matches(r"norm_weight|.*norm\d*_weight"), "torch.ones({shape}, dtype={dtype})"),
    (_matches(r"norm_bias|.*norm\d*_bias"), "torch.zeros({shape}, dtype={dtype})"),
    (
        lambda each: each.is_causal_mask,
        "torch.full({shape}, torch.finfo({dtype}).min, dtype={dtype}).triu(1)",
    ),
    (lambda each: each.is_binary_mask, "torch.randint(0, 2, {shape}).to({dtype})"),
    (_matches(r"cos|cos_cached|rope_cos"), "torch.randn({shape}).clamp(-torch.pi, torch.pi).cos().to({dtype})"),
    (_matches(r"sin|sin_cached|rope_sin"), "torch.randn({shape}).clamp(-torch.pi, torch.pi).sin().to({dtype})"),
    (_matches(r"(.*_)?(rstd|std|variance|var)\d*"), "torch.randn({shape}, dtype={dtype}).abs() + 0.1"),
    (_matches("A_cumsum"), "torch.empty({shape}, dtype={dtype}).uniform_(-0.1, 0).cumsum(-1)"),
    (_matches("A_log"), "torch.empty({shape}, dtype={dtype}).uniform_(-5, -1)"),
    (_matches("A"), "torch.empty({shape}, dtype={dtype}).uniform_(-1, -0.001)"),
    (_matches("g"), "torch.empty({shape}, dtype={dtype}).uniform_(-5, 0)"),
    (lambda each: each.is_softmax, "torch.randn({shape}).softmax(-1).to({dtype})"),
    (
        lambda each: len(each.shape) >= _SQUARE and re.fullmatch(_WEIGHT, each.name) is not None,
        "torch.randn({shape}, dtype={dtype}) / {columns} ** 0.5",
    ),
)
_WEIGHT = r"weight\d*|.*(_weights?|_projs?|_weight_matrix)\d*"


def random_value(name: str, spec: TensorSpec) -> str:
    """Return the expression of a random input, in names of axes. A Python number has `item()`."""
    shape = spec.shape or []
    texts = {"shape": shape_text(spec), "dtype": f"torch.{spec.dtype}", "columns": shape[-1] if shape else "1"}
    drawn = _expression(name, spec, shape).format_map(texts)
    return f"{drawn}.item()" if spec.shape is None else drawn


def shape_text(spec: TensorSpec) -> str:
    """Return the tuple of a shape, in names of axes."""
    shape = [one_line(part) for part in spec.shape or []]
    return f"({', '.join(shape)}{',' if len(shape) == 1 else ''})"


def _expression(name: str, spec: TensorSpec, shape: list[str]) -> str:
    if spec.dtype in _PLAIN:
        each = _Input(name, (spec.description or "").lower(), shape)
        named = (text for applies, text in _BY_NAME if spec.shape is not None and applies(each))
        return next(named, "torch.randn({shape}, dtype={dtype})")
    if spec.dtype is DType.BOOL:
        return "torch.randint(0, 2, {shape}, dtype=torch.bool)"
    if spec.dtype.is_packed:
        return "torch.randint(0, 256, {shape}, dtype=torch.uint8)"
    if spec.dtype in _WHOLE:
        low, high = _WHOLE[spec.dtype]
        return f"torch.randint({low}, {high}, {{shape}}, dtype={{dtype}})"
    return "torch.randn({shape}).clamp(-2, 2).to({dtype})"


_RUN = "run"
_MARK = "# From here on written by Warpgrade."
_OWN = (
    *("torch", "_run", "_make_inputs", "_folder", "as_defined", "ordered", "empty_outputs"),
    *("Model", "get_inputs", "get_init_inputs"),
)
"""Names of the text below the definition's."""


def module_text(definition: Definition, line: WorkloadLine, folder: str, where: str) -> str:
    """Return the text of a reference, with the constants of one workload. Paths of data are relative to `folder`.

    Raises:
        ProblemError: the definition's text is not Python, defines no `run`, or needs a name of its own for something
            else.
    """
    tree = parse(definition.reference, f"{where}: reference")
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
