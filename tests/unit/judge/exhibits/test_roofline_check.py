"""The verdict of the roofline, with a GPU whose measured numbers are given."""

from types import SimpleNamespace

import pytest
import torch
from msgspec.structs import replace

from evaluator.catalog import find_problem
from evaluator.findings import Code
from evaluator.judge.exhibits import roofline_check as bounding
from evaluator.judge.reference.reference import Reference
from evaluator.records import L2Rule, RooflineOverride, SizeName, Status
from tests import cards

SLOW, FAST = 1e6, 1e12
"""Bytes a second: at the slow one the small relu's megabyte takes a second each way."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """What the problem needs, which takes the longest, is worked out once for all tests."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def bounded(monkeypatch, cache):
    monkeypatch.setenv("WARPGRADE_CACHE", str(cache))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(bounding.gpu_peaks, "peak", lambda *_: 1e12)

    def run(timing, *, kept=SLOW, now=SLOW, l2=L2Rule.COLD, l2_bytes=0, **changes):
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(L2_cache_size=l2_bytes))
        monkeypatch.setattr(bounding.gpu_peaks, "bandwidth", lambda *_: kept)
        monkeypatch.setattr(bounding.gpu_peaks, "measured_bandwidth", lambda _: now)
        problem = replace(find_problem("relu"), **changes)
        terms = SimpleNamespace(gpu=object(), problem=problem, size=SizeName.SMALL, l2=l2)
        context = SimpleNamespace(
            terms=terms, backend=SimpleNamespace(kernels=b"kernels"), reference=Reference(problem, SizeName.SMALL, 1)
        )
        return bounding.check_roofline(context, timing)

    return run


TIMING = cards.timing(9000.0, 500.0)


def test_who_is_faster_than_memory_is_rejected(bounded):
    found = bounded(TIMING)
    assert (found.fault.status, found.fault.finding.code) == (Status.REJECTED, Code.IMPOSSIBLE)
    assert found.roofline.floor_ms == pytest.approx(2 * 64 * 4096 * 4 / 1e3)


@pytest.mark.parametrize(("kept", "now"), [(SLOW, FAST), (FAST, SLOW)])
def test_a_bandwidth_from_a_slow_moment_speaks_against_nobody(bounded, kept, now):
    found = bounded(TIMING, kept=kept, now=now)
    assert (found.fault, found.roofline.bandwidth_bytes_per_s) == (None, FAST)


BRANCHING = find_problem("relu").source.replace("torch.relu(x)", "torch.relu(x) if x.sum() < 1e9 else x")


def test_without_a_count_there_is_no_verdict_unless_the_author_says_what_is_needed(bounded):
    found = bounded(TIMING, source=BRANCHING)
    assert (found.roofline, found.fault) == (None, None)
    assert [each.code for each in found.findings] == [Code.NO_ROOFLINE]
    said = RooflineOverride(reason="for a test", read_bytes="4 * batch_size * dim", written_bytes="0")
    found = bounded(TIMING, source=BRANCHING, roofline=said)
    assert found.fault.finding.code == Code.IMPOSSIBLE
    assert found.roofline.read_bytes == found.roofline.needed_read_bytes == 64 * 4096 * 4


def test_what_a_problem_needs_is_worked_out_once(bounded, monkeypatch):
    first = bounded(TIMING)
    monkeypatch.setattr(
        "evaluator.judge.exhibits.required_traffic.worked_out", lambda *_: pytest.fail("it was worked out again")
    )
    assert bounded(TIMING) == first


@pytest.mark.parametrize(("l2", "floor_bytes"), [(L2Rule.COLD, 3 << 18), (L2Rule.WARM, 1 << 19)])
def test_bytes_that_l2_may_hold_before_a_call_are_no_part_of_the_floor(bounded, l2, floor_bytes):
    """The small relu reads and writes a mebibyte. A quarter of a mebibyte is read and written from L2, if warm."""
    found = bounded(TIMING, l2=l2, l2_bytes=1 << 18)
    assert found.roofline.floor_ms == pytest.approx((floor_bytes + (1 << 20)) / 1e3)


def test_warm_inputs_that_fit_into_l2_have_no_floor(bounded):
    found = bounded(cards.timing(0.004, 0.002), l2=L2Rule.WARM, l2_bytes=1 << 21)
    assert (found.fault, found.roofline.floor_ms) == (None, 0.0)
    cold = bounded(cards.timing(2000.0, 0.002), l2_bytes=1 << 21)
    assert cold.fault.finding.code == Code.IMPOSSIBLE
