"""Values of `random` inputs, as expressions of PyTorch: SOL-ExecBench draws by dtype, and by the input's name.

A variance drawn from a normal distribution would be negative, and a rotation by such cosines no rotation: its harness
therefore chooses the distribution of a floating-point input by name and description
(`core/bench/io.py` of NVIDIA/SOL-ExecBench). The same names have the same distributions here.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from evaluator.catalog.readers.definition import DType, TensorSpec
from evaluator.catalog.readers.formula import one_line

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
    texts = {
        "shape": shape_text(spec),
        "dtype": f"torch.{spec.dtype}",
        "columns": shape[-1] if shape else "1",
    }
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
