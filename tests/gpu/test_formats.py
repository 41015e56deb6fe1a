"""Formats of few bits on a GPU: drawn codes, and the comparison, which is PyTorch's there as on the CPU."""

import pytest
import torch

from evaluator.judge.compare.steps import Steps
from evaluator.judge.compare.tensor_comparison import Sides, compare
from evaluator.judge.reference.input_distributions import PROFILES, change
from evaluator.judge.tensors.number_formats import are_equal, codes_at, elements
from evaluator.records import ElementFormat

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
BLOCKS = {ElementFormat.MXFP4: 32, ElementFormat.NVFP4: 16}


def drawn(form):
    least = 0 if form is ElementFormat.E8M0 else -200
    return codes_at(torch.randint(least, 200, (64, 512), generator=torch.Generator().manual_seed(1)), form)


def scales_of(form, device):
    if form not in BLOCKS:
        return None
    ones = torch.ones(64, 512 // BLOCKS[form])
    codes = ones.to(torch.float8_e4m3fn) if form is ElementFormat.NVFP4 else (ones * 127).to(torch.uint8)
    return Sides(*[codes.to(device)] * 3)


@pytest.mark.parametrize("form", ElementFormat)
def test_both_devices_decide_alike(form):
    exact = drawn(form)
    places = elements(exact, form).places
    places.view(-1)[::100] += 1
    places.view(-1)[::5000] += 4
    wrong = codes_at(places, form)
    for actual in (exact, wrong):
        found = [
            compare("output", Sides(actual.to(each), exact.to(each), exact.to(each)), Steps(form, 0.0, 4.0, scales))
            for each in ("cpu", "cuda")
            for scales in (scales_of(form, each),)
        ]
        assert found[0] == found[1]
        assert found[0].ok is (actual is exact)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("form", [form for form in ElementFormat if form is not ElementFormat.E8M0])
def test_codes_are_drawn_on_the_gpu(form, profile):
    given = drawn(form).to("cuda")
    before = given.clone()
    other = change(profile, [], given, 1, torch.device("cuda"), {0: form})
    assert other is given
    assert not are_equal(other, before)
    assert bool(elements(other, form).values.isfinite().all())
