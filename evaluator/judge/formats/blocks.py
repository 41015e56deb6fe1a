"""Block formats: elements of e2m1 with a scale for each block of a row.

mxfp4 has blocks of 32 and scales in e8m0 (OCP MX Specification 1.0, sections 5.2 and 5.4.1). nvfp4 has blocks of 16 and
scales in e4m3; a further scale of the whole tensor, if any, is an output of its own.
"""

import torch

from evaluator.judge.formats.elements import elements
from evaluator.records import ElementFormat

_BLOCKS = {ElementFormat.MXFP4: 32, ElementFormat.NVFP4: 16}
_SCALES = {ElementFormat.MXFP4: ElementFormat.E8M0, ElementFormat.NVFP4: ElementFormat.FP8_E4M3}


def block_elements(form: ElementFormat) -> int | None:
    """Return the number of elements that share a scale; None for a format without blocks."""
    return _BLOCKS.get(form)


def scale_format(form: ElementFormat) -> ElementFormat:
    """Return the format of the scales of a block format."""
    return _SCALES[form]


def scale_values(scales: torch.Tensor, width: int, form: ElementFormat) -> torch.Tensor:
    """Return the scale of each of `width` elements in float64, from rows of scales. The last block may be shorter."""
    return elements(scales, _SCALES[form]).values.repeat_interleave(_BLOCKS[form], 1)[:, :width]


def dequantised(values: torch.Tensor, scales: torch.Tensor, form: ElementFormat) -> torch.Tensor:
    """Return elements, in rows, times the scales of their blocks."""
    return values * scale_values(scales, values.shape[1], form)
