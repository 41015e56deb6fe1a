"""Problems in formats of few bits: a step in few elements is honest, two steps and values cut off are not."""

import pytest

from evaluator.admission.admission import admit
from evaluator.admission.negative_controls import NegativeControl
from evaluator.records import ElementFormat, Formats, OutputFormat, Precision, Profile, SizeName
from tests.unit import references

pytestmark = pytest.mark.slow

F = ElementFormat
GIVEN = "torch.randn(32, 128)"
HELPERS = """
from torch import exp2

def scaled(x, most):
    scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-9) / most
    return x / scale, scale

def int8(x):
    values, scale = scaled(x, 127)
    return values.round().clamp(-127, 127).to(torch.int8), scale

def fp8(x, dtype):
    most = torch.finfo(dtype).max
    values, scale = scaled(x, most)
    return values.clamp(-most, most).to(dtype), scale

def packed(places):
    return (places[..., ::2] | places[..., 1::2] << 4).to(torch.uint8)

def int4(x):
    values, scale = scaled(x, 7)
    return packed(values.round().clamp(-8, 7).to(torch.int16) & 15), scale

def e2m1(values):
    grid = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=values.dtype)
    places = torch.bucketize(values.abs(), (grid[1:] + grid[:-1]) / 2)
    return packed((places + 8 * (values < 0)).flatten(-2))

def mxfp4(x):
    blocks = x.unflatten(-1, (-1, 32))
    exponents = torch.frexp(blocks.abs().amax(-1)).exponent - 3
    scale = (exponents + 127).to(torch.uint8).view(torch.float8_e8m0fnu)
    return e2m1(blocks / exp2(exponents.to(x.dtype))[..., None]), scale

def nvfp4(x):
    blocks = x.unflatten(-1, (-1, 16))
    scale = (blocks.abs().amax(-1) / 6).clamp(2.0**-9, 448).to(torch.float8_e4m3fn)
    return e2m1(blocks / scale.to(x.dtype)[..., None]), scale
"""
QUANTISERS = {
    F.INT8: ("int8(x)", OutputFormat(F.INT8)),
    F.FP8_E4M3: ("fp8(x, torch.float8_e4m3fn)", OutputFormat(F.FP8_E4M3)),
    F.FP8_E5M2: ("fp8(x, torch.float8_e5m2)", OutputFormat(F.FP8_E5M2)),
    F.INT4: ("int4(x)", OutputFormat(F.INT4)),
    F.MXFP4: ("mxfp4(x)", OutputFormat(F.MXFP4, "output[1]")),
    F.NVFP4: ("nvfp4(x)", OutputFormat(F.NVFP4, "output[1]")),
}
"""mxfp4's scales are of PyTorch's dtype here; the comparison's own tests have them in bytes."""


@pytest.fixture
def quantiser(monkeypatch, tmp_path):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path))
    monkeypatch.setattr(references, "SOURCE", references.SOURCE.replace("class Model", f"{HELPERS}\nclass Model"))

    def make(form, given=GIVEN, **changes):
        output, declared = QUANTISERS[form]
        formats = Formats(outputs={"output[0]": declared})
        return references.problem(output, given, formats=formats, sha256=f"{form.value} {given}", **changes)

    return make


@pytest.mark.parametrize("form", QUANTISERS)
def test_a_quantiser_is_admitted_with_other_distributions(quantiser, form):
    found = admit(quantiser(form), SizeName.SMALL)
    assert found.honest_failures == []
    caught = {each.control: each.caught_on for each in found.controls}
    assert caught[NegativeControl.TWO_STEPS] is Profile.AS_GIVEN
    assert caught[NegativeControl.CUT_OFF] is Profile.AS_GIVEN
    # The values of the blocks alone do not show the rounding of their inputs to half precision.
    allowed = {NegativeControl.BF16, NegativeControl.FP16} if form in (F.MXFP4, F.NVFP4) else set()
    assert {each.control for each in found.controls if each.gets_away} <= allowed
    assert Profile.SIGNED_NORMAL in found.profiles


def test_values_cut_off_are_caught_in_half_precision(quantiser):
    """A fifth of the reference's own codes are a step off: 4 x these would allow a step in every second element."""
    uniform = "(torch.rand(32, 128) * 2 - 1).bfloat16()"
    found = admit(quantiser(F.INT8, given=uniform, precision=Precision.BF16), SizeName.SMALL)
    caught = {each.control: each.caught_on for each in found.controls}
    assert caught[NegativeControl.CUT_OFF] is caught[NegativeControl.TWO_STEPS] is Profile.AS_GIVEN


def test_codes_as_inputs_have_distributions_and_controls(quantiser):
    del quantiser
    given = "torch.randint(-127, 128, (32, 128)).to(torch.int8), torch.rand(32, 1) + 0.5"
    made = references.problem(
        "codes.to(scale.dtype) * scale",
        given,
        forward="codes, scale",
        formats=Formats(inputs={"codes": F.INT8}),
        sha256="codes",
    )
    found = admit(made, SizeName.SMALL)
    assert [each.control for each in found.controls if each.gets_away] == []
    assert set(found.profiles) == set(Profile) - {Profile.AS_GIVEN, Profile.NEAR_ONE}
    controls = {each.control for each in found.controls}
    assert {NegativeControl.MAGNITUDES, NegativeControl.HALF_INPUT, "ignores input 0"} <= controls


def test_weights_in_fp8_are_accepted_and_nan_is_no_step(quantiser):
    del quantiser
    made = references.problem(
        "((x * self.weight.to(x.dtype)).sqrt() * 40).clamp(max=57344).to(torch.float8_e5m2)",
        GIVEN,
        init="self.weight = nn.Parameter((torch.rand(128) + 1).to(torch.float8_e4m3fn))",
        sha256="weights",
    )
    found = admit(made, SizeName.SMALL)
    assert found.honest_failures == []
    caught = {each.control: each.caught_on for each in found.controls}
    assert caught[NegativeControl.CUT_OFF] is caught[NegativeControl.TWO_STEPS] is Profile.AS_GIVEN
    assert caught["ignores weight weight"] is Profile.AS_GIVEN
