"""Outputs whose conjugate or negative is not written out yet: problems that return such, and answers to them."""

from pathlib import Path

_SOURCE = """
import torch
from torch import nn

rows = 64


class {name}(nn.Module):
    def forward(self, x):
        return {output}


def get_inputs():
    return [{given}]


def get_init_inputs():
    return []
"""
_TOML = """
title = "lazy"
level = 1
description = "An output with a lazy bit."
[sizes.full]
rows = 64
[sizes.small]
rows = 48
"""
_COMPLEX = "torch.randn(rows, 600, dtype=torch.complex64)"
LAZY = {
    "conjugated": (_COMPLEX, "torch.fft.fft(x).conj()", "torch.fft.fft(x).conj().resolve_conj()"),
    "adjoint": (_COMPLEX, "(x * 2).mH", "(x * 2).mH.resolve_conj()"),
    "imaginary part": (_COMPLEX, "(x * 2).conj().imag", "-(x * 2).imag"),
    "negative view": ("torch.randn(rows, 600)", "torch._neg_view(x * 2)", "x * -2"),
    "two of them": (
        _COMPLEX,
        "((x * 2).conj(), (x * 3).conj().imag)",
        "((x * 2).conj().resolve_conj(), -(x * 3).imag)",
    ),
}
"""The input, an output with lazy bits, the same written out."""


def folder(top: Path, given: str, output: str) -> Path:
    """Write the problem with that output below `top`; give its folder."""
    place = top / "lazy"
    place.mkdir(exist_ok=True)
    (place / "reference.py").write_text(_SOURCE.format(name="Model", given=given, output=output))
    (place / "problem.toml").write_text(_TOML)
    return place


def answer(output: str) -> str:
    """Write a submission that returns `output`."""
    return _SOURCE.partition("\n\ndef get_inputs")[0].format(name="ModelNew", output=output)
