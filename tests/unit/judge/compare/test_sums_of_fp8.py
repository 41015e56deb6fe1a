"""The floor of `matmul_fp8`: sums of fp8 products on Hopper's tensor cores pass, other errors do not.

An instruction adds 32 products and the accumulator: addends are aligned to the largest, and bits below 2**-13 of the
largest's leading bit are cut off. 3814 of 16,777,216 elements of an H100's product were beyond 2e-3.
"""

import pytest
import torch
from msgspec.structs import replace

from benchmarks.numerics.judged_answers import AnswerTrials, set_up
from evaluator.catalog import find_problem
from evaluator.judge.compare.tensor_comparison import Sides, compare
from evaluator.judge.compare.tolerance import bounds
from evaluator.judge.numerics.rounding_of_call import rounding_of_fp8_sums
from evaluator.judge.reference.reference import Reference
from evaluator.protocol.model_call import Result
from evaluator.records import Profile, SizeName, ToleranceRule, cases_of

TOKENS, COLUMNS = 16, 1024
TOGETHER, BITS = 32, 13
TILE = 128
"""Products that kernels let tensor cores add, before fp32 takes over."""


def cut(values, unit):
    return torch.trunc(values / unit) * unit


def unit_of(largest, bits):
    return torch.exp2(torch.frexp(largest.clamp(min=1e-30))[1] - 1.0 - bits)


def sums(a, b, *, promoted_after):
    """Return products of rows of `a` and `b`, added as by Hopper's tensor cores."""
    total = torch.zeros(len(a), len(b))
    some = torch.zeros_like(total)
    for start in range(0, a.shape[1], TOGETHER):
        products = a[:, None, start : start + TOGETHER] * b[None, :, start : start + TOGETHER]
        unit = unit_of(torch.maximum(products.abs().amax(2), some.abs()), BITS)
        some = cut(products, unit[..., None]).sum(2) + cut(some, unit)
        some = cut(some, unit_of(some.abs(), BITS))
        if (start + TOGETHER) % promoted_after == 0:
            total, some = total + some, torch.zeros_like(some)
    return total + some


@pytest.fixture(scope="module")
def problem():
    return find_problem("matmul_fp8")


@pytest.fixture(scope="module")
def inputs(problem):
    """The problem's own inputs at full size."""
    return Reference(problem, SizeName.FULL, 1).draw(1, Profile.AS_GIVEN).args


@pytest.fixture(scope="module")
def drawn(inputs):
    a, a_scale, b, b_scale = inputs
    return a[:TOKENS].float(), a_scale[:TOKENS], b[:COLUMNS].float(), b_scale[:COLUMNS]


@pytest.fixture(scope="module")
def errors(drawn):
    """Errors of sums of a tile and of whole sums, relative to the root mean square of the products."""
    a, _, b, _ = drawn
    exact = a.double() @ b.double().T
    return {
        length: (sums(a, b, promoted_after=length) - exact) / exact.square().mean().sqrt()
        for length in (TILE, a.shape[1])
    }


def part_beyond(limit, errors, scales):
    """Return the part of elements with an error beyond `limit` of the row's root mean square, with all `scales`."""
    weights = (scales / scales.square().mean().sqrt()).double().flatten()
    known = errors.abs().flatten().sort().values
    return float((1 - torch.searchsorted(known, limit / weights) / known.numel()).mean())


def judged(problem, drawn, product, a_scale=None):
    a, scale, b, b_scale = drawn
    answer = product * (scale if a_scale is None else a_scale) * b_scale.T
    exact = a.double() @ b.double().T * scale.double() * b_scale.double().T
    limit = bounds(ToleranceRule.MEASURED, problem, torch.float32)
    return compare("output", Sides(answer, exact, a @ b.T * scale * b_scale.T), limit)


def test_the_model_of_the_tensor_core_explains_the_measured_errors(inputs, errors):
    assert 1.2e-4 < errors[TILE].square().mean().sqrt() < 1.5e-4
    assert part_beyond(2e-3, errors[TILE], inputs[3]) == pytest.approx(3814 / 2**24, rel=0.5)


def test_sums_of_a_tile_pass_with_room(problem, drawn):
    a, _, b, _ = drawn
    check = judged(problem, drawn, sums(a, b, promoted_after=TILE))
    assert check.ok
    assert check.error_ratio < 0.5


def test_errors_that_are_not_of_the_tensor_core_fail(problem, drawn):
    a, a_scale, b, _ = drawn
    forgotten = a_scale.clone()
    forgotten[3] = 1.0
    assert not judged(problem, drawn, a @ b.T, forgotten).ok
    assert not judged(problem, drawn, a[:, 1:] @ b[:, 1:].T).ok
    stepped = torch.where(torch.arange(a.shape[1]) % 2 == 0, a, (a * 1.07).to(torch.float8_e4m3fn).float())
    assert not judged(problem, drawn, stepped @ b.T).ok
    in_fewer_bits = a.to(torch.float8_e5m2).float()
    assert not judged(problem, drawn, in_fewer_bits @ b.T).ok


OUTLIERS = 2
"""Calls with outliers among the scales."""


@pytest.fixture(scope="module")
def trials(problem):
    """A setup of 512 tokens: enough rows that an element of the heaviest column cancels in some."""
    setup = set_up(problem, SizeName.SMALL, "cpu")
    shape = {"tokens": 512, "inner": 1024, "columns": 512}
    smaller = Reference(replace(problem, cases=cases_of({SizeName.FULL: shape}), split={}), SizeName.FULL, 1)
    return setup._replace(reference=smaller)


def codes(trials, product, profile=Profile.OUTLIERS):
    """Return the codes of calls; `product` computes the two heaviest columns, and fp32 the rest."""

    def answer(plan):
        a, a_scale, b, b_scale = plan.inputs.args
        heaviest = b_scale.flatten().abs().topk(2).indices
        sums = a.float() @ b.float().T
        sums[:, heaviest] = product(a.float(), b[heaviest].float())
        return Result(sums * a_scale * b_scale.T, None)

    seeds = [seed for seed in range(4000) if trials.distribution_mix.pick(seed) is profile][:OUTLIERS]
    found = [AnswerTrials(trials, answer).run(1, seed, timeout_s=60).fault for seed in seeds]
    return [None if fault is None else fault.finding.code for fault in found]


def test_a_column_with_an_outlier_as_scale_keeps_the_rounding_of_its_elements(trials):
    """An element that cancels makes its row small; 0.05 of this row would be less than the element's own rounding."""
    assert codes(trials, lambda a, b: sums(a, b, promoted_after=TILE)) == [None] * OUTLIERS


@pytest.mark.parametrize("wrong", [
    lambda a, b: a.to(torch.float8_e5m2).float() @ b.T,
    lambda a, b: a[:, 1:] @ b[:, 1:].T,
    lambda a, b: sums(a, b, promoted_after=1024) * 1.5,
], ids=["operands in e5m2", "a product left out", "off by a half"])  # fmt: skip
def test_a_column_with_an_outlier_as_scale_has_room_for_nothing_else(trials, wrong):
    assert None not in codes(trials, wrong)


def test_the_problems_own_scales_need_no_more_than_the_floor(trials, problem):
    inputs = trials.reference.draw(3)
    plain = trials.reference.honest(inputs, 0, None).result
    found = rounding_of_fp8_sums(trials.reference, inputs, None, plain, 0)["output"]
    assert 1e-4 < found < problem.tolerance.floor / 4
