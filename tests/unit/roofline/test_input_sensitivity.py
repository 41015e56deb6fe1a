"""What changed samples show of what a reference must read; the floor and the verdict that come of it."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from evaluator.catalog import find_problem
from evaluator.findings import Code
from evaluator.judge.exhibits import required_traffic
from evaluator.judge.exhibits.required_traffic import TrafficUnknown, distinct_bytes, worked_out
from evaluator.judge.reference.reference import Reference
from evaluator.records import Flips, RooflineOverride, SizeName, cases_of
from evaluator.roofline.attained import Needs, Roof, attained, impossible, is_impossible, least_part, remarks, traffic
from evaluator.roofline.input_sensitivity import Undetermined, sample
from tests import cards

N = 96
HEAD = "import torch\nfrom torch import nn\nfrom torch.nn import functional as F\n"


@pytest.fixture(autouse=True)
def same_draws(monkeypatch):
    """Draw the same inputs in every run: in some draws a sampled row holds the tensor's largest or least value."""
    seeds = itertools.count(1)
    monkeypatch.setattr(required_traffic, "fresh_seed", lambda: next(seeds))


def needs(inputs, forward, init="pass", **changes):
    """Work out what a reference given as the body of its file needs, on the CPU."""
    source = (
        f"{HEAD}class Model(nn.Module):\n"
        f"    def __init__(self):\n        super().__init__()\n        {init}\n"
        f"    def forward(self, *args):\n        x, *rest = args\n        return {forward}\n"
        f"def get_inputs():\n    return [{inputs}]\n"
        f"def get_init_inputs():\n    return []\n"
    )
    problem = replace(find_problem("relu"), source=source, cases=cases_of({SizeName.FULL: {}}), **changes)
    return worked_out(problem, SizeName.FULL, Reference(problem, SizeName.FULL, 1), math.inf)


def sampled(answer, tensors):
    return sample(answer, tensors, budget_s=math.inf)


def part(flips):
    return flips.mattered / flips.samples


@pytest.mark.parametrize(
    ("inputs", "forward", "expected"),
    [
        # All of it: signs that a function cuts off, a maximum, a mean over many, a mask, a domain.
        ("torch.randn(64, 1024)", "torch.relu(x)", 1.0),
        # (A row that holds the tensor's largest value already gains nothing from another one further on.)
        ("torch.randn(4096, 64)", "x.argmax(1)", 1.0),
        ("torch.randn(4096, 64)", "x.argmin(1)", 1.0),
        ("torch.randn(64, 1024)", "x.mean()", 1.0),
        ("torch.rand(64, 1024)", "F.binary_cross_entropy(x, x.detach())", 1.0),
        ("torch.rand(64, 1024) < 0.5", "x.sum(1)", 1.0),
        ("torch.randn(64, 1024).to(torch.bfloat16)", "x + 1", 1.0),
        ("torch.randn(1, 1024).expand(64, 1024)", "x + 1", 1.0),
        # Half of each matrix, a slice, the rows that are gathered, nothing but the shape.
        (f"torch.randn({N}, {N})", "torch.triu(x)", 0.5),
        (f"torch.randn({N}, {N}), torch.randn({N}, {N})", "torch.tril(torch.tril(x) @ torch.tril(rest[0]))", 0.5),
        ("torch.randn(64, 1024)", "x[:, :256] + 1", 0.25),
        ("torch.randn(64, 1024)[:, :256]", "x + 1", 1.0),
        ("torch.randn(1000, 64), torch.arange(0, 1000, 8)", "x[rest[0]]", 0.125),
        ("torch.randn(64, 1024)", "torch.ones_like(x)", 0.0),
        # A matrix that is a triangle already, of which a program that knows reads no more than that.
        (f"torch.triu(torch.randn(4 * {N}, 4 * {N}))", "x.sum(1)", 0.5),
    ],
)
def test_the_part_of_the_inputs_that_matters(inputs, forward, expected):
    found = needs(inputs, forward)
    assert found.input_flips.samples == 128
    if expected in (0.0, 1.0):
        assert part(found.input_flips) == expected
    else:
        # Four standard deviations of 128 samples; a sector on the diagonal counts for both halves.
        assert part(found.input_flips) == pytest.approx(expected, abs=0.18)
        assert least_part(found.input_flips) < expected * 1.1
    assert found.state_flips is None


@pytest.mark.parametrize("name", ["relu", "softmax", "cross_entropy", "attention", "rms_norm_bf16"])
def test_all_that_a_shipped_problem_reads_matters(name):
    problem = find_problem(name)
    found = worked_out(problem, SizeName.SMALL, Reference(problem, SizeName.SMALL, 1), math.inf)
    assert part(found.input_flips) == 1.0
    assert found.input_bytes + found.state_bytes <= found.read_bytes


def test_what_is_propagated_back_to_places_that_are_cut_off_need_not_be_read():
    """Rows of x that are negative throughout: x matters there, and its gradient is always zero."""
    shipped = find_problem("relu_backward")
    signs = "torch.randn(batch_size, dim).abs() * torch.tensor([1.0, -1.0]).repeat(batch_size // 2)[:, None]"
    problem = replace(shipped, source=shipped.source.replace("torch.randn(batch_size, dim)", signs))
    found = worked_out(problem, SizeName.SMALL, Reference(problem, SizeName.SMALL, 1), math.inf)
    assert part(found.input_flips) == pytest.approx(0.75, abs=0.15)


def test_weights_are_sampled_apart():
    found = needs("torch.randn(8, 64)", "self.w[:, :32] @ x.T[:32]", "self.w = nn.Parameter(torch.randn(256, 64))")
    assert 0.3 < part(found.state_flips) < 0.7
    assert found.state_bytes == 256 * 64 * 4


def test_what_rounding_swallows_matters_all_the_same():
    """A sector of a quarter of a million values near 5 changes their mean by less than fp32 can tell."""
    x = 5 + torch.rand(512, 512) / 1000
    assert part(sample(lambda: [x.mean()], [x], samples=8)) < 1
    assert part(needs("5 + torch.rand(512, 512) / 1000", "x.mean()").input_flips) == 1.0


def test_an_input_that_a_reference_writes_to_is_as_it_was_for_the_next_sample():
    assert part(needs("torch.randn(64, 1024)", "x.relu_()").input_flips) == 1.0


def test_the_inputs_are_as_they_were():
    x = torch.randn(32, 32)
    before = x.clone()
    assert sampled(lambda: [x * 2], [x]) == Flips(samples=128, mattered=128)
    assert torch.equal(x, before)
    with pytest.raises(ZeroDivisionError):
        sampled(lambda: [x / (1 / 0 if not torch.equal(x, before) else 1)], [x])
    assert torch.equal(x, before)


def test_a_reference_that_never_answers_the_same_says_nothing():
    x = torch.randn(32, 32)
    assert isinstance(sampled(lambda: [torch.rand(3)], [x]), Undetermined)
    with pytest.raises(TrafficUnknown, match="different answers"):
        needs("torch.randn(8, 8)", "x + __import__('secrets').randbelow(1 << 20)")


def test_what_changes_seldom_is_found_out_in_the_end():
    x, calls = torch.randn(32, 32), []

    def answer():
        calls.append(1)
        return [torch.tensor(float(len(calls) > 50))]

    assert isinstance(sampled(answer, [x]), Undetermined)


def test_a_nan_in_an_answer_is_no_change():
    x = torch.randn(32, 32)
    assert sampled(lambda: [torch.full((3,), float("nan"))], [x]) == Flips(samples=128, mattered=0)


def test_integers_and_a_nan_are_left_alone():
    assert sampled(lambda: [torch.ones(1)], [torch.arange(9)]) == Flips(samples=0, mattered=0)
    spoilt = torch.tensor([1.0, float("nan")])
    assert sampled(lambda: [spoilt.clone()], [spoilt]).mattered == 0


def test_what_needs_values_has_no_needs():
    with pytest.raises(TrafficUnknown, match="does not run on the meta device"):
        needs("torch.randn(8, 8)", "x[x > 0]")


def test_of_a_symmetric_input_half_is_certain():
    found = needs("(lambda a: a + a.T)(torch.randn(256, 256))", "x.sum(1)")
    assert (found.input_bytes, found.distinct_input_bytes) == (256 * 256 * 4, 256 * 256 * 2)
    moved = traffic(found, None, {})
    assert moved.read_bytes == 256 * 256 * 4
    assert moved.certain_read_bytes < 256 * 256 * 2


def test_an_output_that_repeats_itself_need_not_be_written_whole():
    row = torch.randn(1, 64)
    assert distinct_bytes([row.expand(32, 64).contiguous()]) == 64 * 4
    assert distinct_bytes([torch.randn(32, 64)]) == 32 * 64 * 4
    assert distinct_bytes([torch.zeros(()), torch.randn(3)]) == 4 + 12


@given(samples=st.integers(1, 128), data=st.data())
def test_the_least_part_is_less_than_what_was_seen_and_grows_with_it(samples, data):
    mattered = data.draw(st.integers(0, samples))
    least = least_part(Flips(samples=samples, mattered=mattered))
    assert 0.0 <= least <= mattered / samples
    if mattered:
        assert least > least_part(Flips(samples=samples, mattered=mattered - 1))


def test_the_least_part_by_hand():
    """With all n mattering it is the n-th root of a thousandth."""
    assert least_part(Flips(samples=64, mattered=64)) == pytest.approx(0.001 ** (1 / 64))
    assert least_part(Flips(samples=1, mattered=1)) == pytest.approx(0.001)


GIB = 1 << 30
ROOF = Roof(bandwidth_bytes_per_s=4e12, l2_bytes=0, peak_flop_per_s=None)
ALL, HALF = Flips(samples=128, mattered=128), Flips(samples=128, mattered=64)
NEEDS = Needs(
    read_bytes=4 * GIB,
    written_bytes=0,
    flop=0,
    input_bytes=4 * GIB,
    state_bytes=0,
    input_flips=ALL,
    state_flips=None,
    distinct_bytes=0,
    distinct_input_bytes=4 * GIB,
)
FLOOR_MS = 4 * GIB / 4e9


def taken(submission_ms, reference_ms=3.0, resolution_ms=0.02):
    return cards.timing(
        reference_ms,
        submission_median_ms=submission_ms,
        submission_low_ms=submission_ms - resolution_ms,
        submission_high_ms=submission_ms + resolution_ms,
        resolution_ms=resolution_ms,
    )


def placed(timing, override=None, roof=ROOF, **changes):
    return attained(replace(NEEDS, **changes), roof, timing, override, {"n": 1024})


def test_an_honest_time_has_its_place():
    found = placed(taken(2 * FLOOR_MS))
    assert found.floor_ms == found.target_ms == pytest.approx(FLOOR_MS)
    assert (found.of_floor, found.bytes_per_s) == (pytest.approx(0.5), pytest.approx(2e12))
    assert found.flop_per_s is None
    assert 0.94 < found.impossible_ms / FLOOR_MS < 0.95


@pytest.mark.parametrize(("read", "said"), [(1.0, False), (0.96, False), (0.9, True), (0.4, True), (0.0, True)])
def test_whoever_reads_a_part_of_what_matters_is_impossible(read, said):
    timing = taken(read * FLOOR_MS)
    assert is_impossible(placed(timing), timing) is said


def test_the_clocks_error_is_in_favour_of_the_submission():
    timing = taken(0.4 * FLOOR_MS, resolution_ms=0.7 * FLOOR_MS)
    assert not is_impossible(placed(timing), timing)


def test_what_does_not_matter_can_be_left_out():
    """A triangle, read and nothing else, at the full bandwidth."""
    timing = taken(0.5 * FLOOR_MS)
    found = placed(timing, input_flips=HALF)
    assert not is_impossible(found, timing)
    assert found.needed_read_bytes == 2 * GIB
    quarter = taken(0.25 * FLOOR_MS)
    assert is_impossible(placed(quarter, input_flips=HALF), quarter)


def test_weights_may_have_been_worked_into_less():
    timing = taken(0.1 * FLOOR_MS)
    found = placed(timing, input_bytes=0, input_flips=None, state_bytes=4 * GIB, state_flips=ALL)
    assert found.impossible_ms == 0.0
    assert found.floor_ms == pytest.approx(FLOOR_MS)
    assert not is_impossible(found, timing)
    assert [each.code for each in remarks(found, timing)] == [Code.BEATS_TARGET]


def test_a_reference_that_is_faster_than_the_floor_refutes_it():
    timing = replace(taken(0.4 * FLOOR_MS, reference_ms=0.5 * FLOOR_MS), reference_high_ms=0.51 * FLOOR_MS)
    found = placed(timing)
    assert not is_impossible(found, timing)
    assert [each.code for each in remarks(found, timing)] == [Code.FLOOR_DOUBTED]


def test_operations_are_a_target_that_may_be_beaten():
    roof = ROOF._replace(peak_flop_per_s=1e12)
    timing = taken(2 * FLOOR_MS)
    found = placed(timing, roof=roof, flop=10**10)
    assert found.target_ms == pytest.approx(10.0)
    assert found.flop_per_s == pytest.approx(1e13 / (2 * FLOOR_MS))
    (said,) = remarks(found, timing)
    assert (said.code, said.details["target_ms"]) == (Code.BEATS_TARGET, found.target_ms)
    slow = taken(11.0)
    assert remarks(placed(slow, roof=roof, flop=10**10), slow) == []


def test_integers_are_needed_and_not_certain():
    moved = traffic(replace(NEEDS, input_bytes=0, input_flips=None), None, {})
    assert (moved.read_bytes, moved.certain_read_bytes) == (4 * GIB, 0)


def test_what_the_author_says_counts():
    override = RooflineOverride(reason="half of it is zero", read_bytes="2 * n * n", written_bytes="n", flop="n // 2")
    timing = taken(2.0)
    found = placed(timing, override)
    assert (found.needed_read_bytes, found.written_bytes, found.flop) == (2 << 20, 1024, 512)
    assert found.impossible_ms == found.floor_ms == pytest.approx(((2 << 20) + 1024) / 4e9)
    assert found.override_reason == "half of it is zero"


def test_the_finding_says_both_times():
    timing = taken(0.4 * FLOOR_MS)
    said = impossible(placed(timing), timing)
    assert said.code == Code.IMPOSSIBLE
    assert said.details["impossible_ms"] == placed(timing).impossible_ms


def test_a_time_of_nothing_has_no_rates():
    found = placed(taken(0.0))
    assert (found.of_floor, found.bytes_per_s) == (None, None)
