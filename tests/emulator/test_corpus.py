"""The corpus on the emulated device: right submissions pass in every order, broken ones end for their reason."""

import os

import pytest

from evaluator.findings import Code
from evaluator.grade_options import GradeOptions
from evaluator.grading.pipeline import grade
from evaluator.grading.request import GradeRequest, threads
from evaluator.judge.context.context_pool import ContextPool
from evaluator.judge.setup.grade_terms import GradeTerms
from evaluator.progress import Silent
from evaluator.records import DeviceKind, Order, SizeName, Status
from evaluator.submission.read import read_submission
from tests.corpus.entries import entries
from tests.fork_servers import shared_fork_server

pytestmark = pytest.mark.slow

SAMPLE = {
    *("matmul_tiled", "atomics", "votes", "rms_norm_shuffle_down", "rms_norm_cub_block", "rms_norm_cg_tile"),
    *("silu_dispatch", "half2_fma", "relu_launch_api", "linear_subclass"),
    *("softmax_no_barrier", "shared_not_initialised", "shared_half_requested"),
    *("shuffle_half_mask", "shuffle_in_branch", "softmax_divergent_barrier", "inline_ptx"),
}
"""What every run grades: one entry of each kind, but for kinds that other grades of every run have: faults, asserts,
refused launches and build errors (tests/grading/test_emulated.py), and fixed sizes (tests/grading/test_sizes.py). The
whole corpus compiles for twenty minutes: `make corpus`.
"""

CODES = {
    "illegal-access": {Code.ILLEGAL_ACCESS},
    "shared-out-of-bounds": {Code.ILLEGAL_ACCESS},
    "illegal-access or shared-out-of-bounds": {Code.ILLEGAL_ACCESS},
    "divergent-barrier": {Code.BARRIER},
    "deadlock": {Code.BARRIER},
    "lane-outside-mask": {Code.LANE_OUTSIDE_MASK},
    "assert": {Code.DEVICE_ASSERT},
    # A race may come out right in another order of threads.
    "wrong values": {Code.WRONG_VALUES, Code.NOT_FINITE, Code.DIFFERS},
    # An unchecked launch that did not run leaves the poison of its output: NaN, as good as never written.
    "launch refused": {Code.WRONG_VALUES, Code.NOT_FINITE, Code.FORWARD_FAILED},
}
BY_STATUS = {
    Status.BUILD_ERROR: {Code.COMPILE_FAILED, Code.BINDING},
    Status.INCONCLUSIVE: {Code.NOT_EMULATED, Code.HARD_CODED_SIZE},
}


def graded(entry, folder):
    submission = read_submission(entry.submission(folder))
    request = GradeRequest(
        submission,
        GradeTerms(
            entry.problem(),
            GradeOptions(device=DeviceKind.EMULATED, size=SizeName.SMALL, timeout_s=60.0, build_timeout_s=1200.0),
            gpu=None,
            threads=threads(),
        ),
    )
    context_pool = ContextPool(shared_fork_server(DeviceKind.EMULATED, request.terms.threads), lasting=False)
    with context_pool:
        return grade(request, Silent(), context_pool)


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.name)
def test_the_verdict_is_the_expected_one(entry, tmp_path):
    if os.environ.get("WARPGRADE_CORPUS") != "all" and entry.name not in SAMPLE:
        pytest.skip("not in the sample; WARPGRADE_CORPUS=all (make corpus) grades the whole corpus")
    card = graded(entry, tmp_path)
    expected = entry.expected
    if card.status is Status.CORRECT and expected.blind_spot:
        pytest.skip(f"a known miss, which passed this time: {expected.blind_spot}")
    assert card.status is expected.status, card.reason
    if expected.status is Status.CORRECT:
        assert {check.schedule.order for check in card.checks} == set(Order)
        assert {check.schedule.workers for check in card.checks} == {1, 2}
        assert card.timing is None
        return
    wanted = BY_STATUS.get(expected.status) or CODES[expected.code]
    assert Code(card.reason.code) in wanted, card.reason


def test_the_sample_names_entries():
    assert {entry.name for entry in entries()} >= SAMPLE
