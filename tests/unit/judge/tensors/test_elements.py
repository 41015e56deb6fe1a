"""Codes, values and places of formats of few bits, against the numbers of the specifications."""

import pytest
import torch

from evaluator.judge.tensors.number_formats import (
    are_equal,
    codes_at,
    dequantised,
    dtype_of,
    elements,
    is_packed,
    nearest,
)
from evaluator.records import ElementFormat

F = ElementFormat


def all_codes(form):
    """Give every byte of a format, as 8 rows of 32."""
    return torch.arange(256).to(torch.uint8).view(dtype_of(form)).reshape(8, 32)


@pytest.mark.parametrize("form", F)
def test_values_rise_with_places_and_codes_come_back(form):
    values, places = elements(all_codes(form), form)
    finite = values.isfinite()
    order = places[finite].argsort()
    assert bool((values[finite][order].diff() >= 0).all())
    assert torch.equal(elements(codes_at(places, form), form).values[finite], values[finite])
    assert bool((values[finite & (places == 0)] == (0 if form is not F.E8M0 else 2.0**-127)).all())
    steps = places[finite].unique().diff()
    assert set(steps.tolist()) == {1}, "a value has no place between its neighbours"


SPECIFIED = {
    # OFP8 1.0, table 1: the largest and smallest values; e4m3 has no infinity.
    F.FP8_E4M3: {0x7E: 448.0, 0x08: 2.0**-6, 0x01: 2.0**-9, 0x80: 0.0, 0xFE: -448.0},
    F.FP8_E5M2: {0x7B: 57344.0, 0x04: 2.0**-14, 0x01: 2.0**-16, 0x7C: torch.inf},
    F.INT8: {0x7F: 127.0, 0x80: -128.0, 0xFF: -1.0},
    # MX 1.0, section 5.4.1.
    F.E8M0: {127: 1.0, 0: 2.0**-127, 254: 2.0**127},
}


@pytest.mark.parametrize("form", SPECIFIED)
def test_codes_have_the_values_of_the_specification(form):
    values = elements(all_codes(form), form).values.reshape(-1)
    assert {code: float(values[code]) for code in SPECIFIED[form]} == SPECIFIED[form]


def test_codes_without_a_value_are_nan():
    for form, codes in ((F.FP8_E4M3, [0x7F, 0xFF]), (F.FP8_E5M2, [0x7D, 0xFF]), (F.E8M0, [255])):
        assert elements(all_codes(form), form).values.reshape(-1)[codes].isnan().all()


def test_a_byte_holds_two_elements_and_the_first_is_in_the_low_bits():
    byte = torch.tensor([[0x9F]], dtype=torch.uint8)
    assert elements(byte, F.INT4).values.tolist() == [[-1.0, -7.0]]
    assert elements(byte, F.MXFP4).values.tolist() == [[-6.0, -0.5]]


@pytest.mark.parametrize("form", F)
def test_drawn_codes_are_finite_whatever_the_values(form):
    values = torch.tensor([[1e30, -1e30, 0.3, 700.0, -0.0, 5.0, 464.1, -7.6]]).abs_().clamp_(min=1e-30)
    values = values if form is F.E8M0 else values * torch.tensor([1, -1, 1, -1, 1, -1, 1, -1])
    codes = nearest(values, form)
    assert codes.dtype == dtype_of(form)
    assert codes.shape == ((1, 4) if is_packed(form) else (1, 8))
    assert elements(codes, form).values.isfinite().all()


def test_a_scale_belongs_to_the_elements_of_its_block():
    ones = torch.ones(1, 40, dtype=torch.float64)
    scaled = dequantised(ones, torch.tensor([[127, 130]], dtype=torch.uint8), F.MXFP4)
    assert scaled[0].tolist() == [1.0] * 32 + [8.0] * 8
    scaled = dequantised(ones, torch.tensor([[0.5, 1.0, 448.0]]).to(torch.float8_e4m3fn), F.NVFP4)
    assert scaled[0].tolist() == [0.5] * 16 + [1.0] * 16 + [448.0] * 8


def test_equality_of_fp8_is_equality_of_bytes():
    one = torch.tensor([1.0, float("nan")]).to(torch.float8_e5m2)
    assert are_equal(one, one.clone())
    assert not are_equal(one, one.view(torch.uint8))
    assert not are_equal(one, torch.tensor([1.25, float("nan")]).to(torch.float8_e5m2))
