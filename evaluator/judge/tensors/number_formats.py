"""Elements of number formats of few bits: codes to values, codes to places on the number line, and back.

A place numbers the values of a format in rising order, with 0 for zero: neighbouring values are one step apart. Packed
formats have two elements in a byte, the first in the low bits. Each byte becomes two elements of the last dimension.

Sources of the constants: OCP 8-bit Floating Point Specification (OFP8) 1.0 for e4m3 and e5m2; OCP Microscaling Formats
(MX) Specification 1.0 for e2m1, e8m0 and blocks of 32.

Block formats: elements of e2m1 with a scale for each block of a row.

mxfp4 has blocks of 32 and scales in e8m0 (OCP MX Specification 1.0, sections 5.2 and 5.4.1). nvfp4 has blocks of 16 and
scales in e4m3; a further scale of the whole tensor, if any, is an output of its own.
"""

from typing import NamedTuple

import torch

from evaluator.records import ElementFormat

_SIGN = 0x80
_LOW = 0xF
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Magnitudes of e2m1 (MX Specification 1.0, section 5.3.3)."""
_E8M0_BIAS, _E8M0_NAN = 127, 0xFF


class _Storage(NamedTuple):
    """Storage of a format, its largest and least finite place, and the size of a typical value (for drawn codes)."""

    dtype: torch.dtype
    largest: int
    typical: float
    packed: bool = False
    least: int | None = None


_KINDS = {
    ElementFormat.INT8: _Storage(torch.int8, 127, 32.0, least=-128),
    # The largest finite codes: S.1111.110 is 448, S.11110.11 is 57344.
    ElementFormat.FP8_E4M3: _Storage(torch.float8_e4m3fn, 0x7E, 1.0),
    ElementFormat.FP8_E5M2: _Storage(torch.float8_e5m2, 0x7B, 1.0),
    ElementFormat.INT4: _Storage(torch.uint8, 7, 2.0, packed=True, least=-8),
    ElementFormat.MXFP4: _Storage(torch.uint8, 7, 1.5, packed=True),
    ElementFormat.NVFP4: _Storage(torch.uint8, 7, 1.5, packed=True),
    ElementFormat.E8M0: _Storage(torch.uint8, _E8M0_NAN - 1, 1.0, least=0),
}
_OF_DTYPES = {
    torch.float8_e4m3fn: ElementFormat.FP8_E4M3,
    torch.float8_e5m2: ElementFormat.FP8_E5M2,
    torch.float8_e8m0fnu: ElementFormat.E8M0,
}


class Elements(NamedTuple):
    """Elements of a tensor: values in float64, and places. Places of infinity and NaN have no meaning."""

    values: torch.Tensor
    places: torch.Tensor


def format_of(dtype: torch.dtype) -> ElementFormat | None:
    """Return the format of a dtype of 8-bit floats. Integers are numbers, unless declared codes."""
    return _OF_DTYPES.get(dtype)


def dtype_of(form: ElementFormat) -> torch.dtype:
    """Return the dtype that holds a format."""
    return _KINDS[form].dtype


def is_packed(form: ElementFormat) -> bool:
    """Return whether a byte holds two elements."""
    return _KINDS[form].packed


def typical(form: ElementFormat) -> float:
    """Return the size of a typical value, which leaves room for values four times as large."""
    return _KINDS[form].typical


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in fp8 as float32, exactly: on the CPU, PyTorch computes little in fp8. Others stay unchanged."""
    return tensor.float() if tensor.dtype in _OF_DTYPES else tensor


def comparable(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in fp8 as bytes, for tests of equality; others stay unchanged."""
    return tensor.view(torch.uint8) if tensor.dtype in _OF_DTYPES else tensor


def are_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors are equal. Tensors in fp8 are compared as bytes, so NaN equals the same NaN."""
    return one.dtype == other.dtype and torch.equal(comparable(one), comparable(other))


def elements(tensor: torch.Tensor, form: ElementFormat) -> Elements:
    """Return the elements of a tensor of codes."""
    match form:
        case ElementFormat.INT8:
            return Elements(tensor.double(), tensor.to(torch.int16))
        case ElementFormat.FP8_E4M3 | ElementFormat.FP8_E5M2:
            codes = tensor.view(torch.uint8).to(torch.int16)
            return Elements(tensor.double(), _signed(codes & ~_SIGN, codes >= _SIGN))
        case ElementFormat.INT4:
            places = (_nibbles(tensor) ^ 8) - 8
            return Elements(places.double(), places)
        case ElementFormat.MXFP4 | ElementFormat.NVFP4:
            codes = _nibbles(tensor)
            table = torch.tensor(_E2M1, dtype=torch.float64, device=tensor.device)
            magnitudes = codes & 7
            is_negative = codes >= 8
            return Elements(_signed(table[magnitudes.long()], is_negative), _signed(magnitudes, is_negative))
        case ElementFormat.E8M0:
            places = tensor.view(torch.uint8).to(torch.int16)
            values = torch.exp2(places.double() - _E8M0_BIAS)
            return Elements(torch.where(places == _E8M0_NAN, torch.nan, values), places)


def values_of(tensor: torch.Tensor, form: ElementFormat) -> torch.Tensor:
    """Return the values of a tensor of codes, without places, in float32 or wider."""
    match form:
        case ElementFormat.INT8 | ElementFormat.FP8_E4M3 | ElementFormat.FP8_E5M2:
            return tensor.float()
        case ElementFormat.INT4 | ElementFormat.MXFP4 | ElementFormat.NVFP4 | ElementFormat.E8M0:
            return elements(tensor, form).values


def codes_at(places: torch.Tensor, form: ElementFormat) -> torch.Tensor:
    """Return the codes at places, of whole numbers; places beyond the largest value become the largest value."""
    kind = _KINDS[form]
    places = places.clamp(-kind.largest if kind.least is None else kind.least, kind.largest).to(torch.int16)
    match form:
        case ElementFormat.INT8:
            return places.to(torch.int8)
        case ElementFormat.FP8_E4M3 | ElementFormat.FP8_E5M2:
            codes = torch.where(places < 0, _SIGN - places, places)
            return codes.to(torch.uint8).view(kind.dtype)
        case ElementFormat.INT4:
            return _packed(places & _LOW)
        case ElementFormat.MXFP4 | ElementFormat.NVFP4:
            return _packed(torch.where(places < 0, 8 - places, places))
        case ElementFormat.E8M0:
            return places.to(torch.uint8)


def nearest(values: torch.Tensor, form: ElementFormat) -> torch.Tensor:
    """Return the codes of the nearest values of a format. Larger values become the largest: the judge draws no NaN."""
    match form:
        case ElementFormat.INT8 | ElementFormat.INT4:
            return codes_at(values.round().clamp(-128, 127), form)
        case ElementFormat.FP8_E4M3 | ElementFormat.FP8_E5M2:
            dtype = _KINDS[form].dtype
            most = torch.finfo(dtype).max
            return values.clamp(-most, most).to(dtype)
        case ElementFormat.MXFP4 | ElementFormat.NVFP4:
            return codes_at(place_of(values).round(), form)
        case ElementFormat.E8M0:
            return codes_at(values.log2().round() + _E8M0_BIAS, form)


def place_of(values: torch.Tensor) -> torch.Tensor:
    """Return places of any values on e2m1's number line, linear between neighbours and beyond the ends.

    >>> place_of(torch.tensor([0.25, -2.0, 3.5, 8.0])).tolist()
    [0.5, -4.0, 5.5, 8.0]
    """
    size = values.abs()
    # The spacing is 1/2 up to 2, 1 up to 4, and 2 from there on.
    position = torch.where(size <= 2, size * 2, torch.where(size <= 4, size + 2, size / 2 + 4))
    return torch.where(values < 0, -position, position)


def _signed(magnitudes: torch.Tensor, is_negative: torch.Tensor) -> torch.Tensor:
    return torch.where(is_negative, -magnitudes, magnitudes)


def _nibbles(tensor: torch.Tensor) -> torch.Tensor:
    """Return two elements for each byte of the last dimension, the low bits first."""
    codes = tensor.to(torch.int16)
    return torch.stack([codes & _LOW, codes >> 4], -1).flatten(-2)


def _packed(nibbles: torch.Tensor) -> torch.Tensor:
    return (nibbles[..., ::2] | nibbles[..., 1::2] << 4).to(torch.uint8)


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
