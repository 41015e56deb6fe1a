"""A wrong answer is called stale only if its error is a part of what the change of the weights amounts to."""

import pytest

from evaluator.judge.trial.retry import is_beyond_chance, is_nearer_to_earlier, is_stale
from evaluator.records import TensorCheck

ELEMENTS = 16_777_216


def check(ratio, mismatches, *, nonfinite=0, path="output"):
    return TensorCheck(
        path=path,
        dtype="float32",
        shape=[ELEMENTS],
        ok=mismatches == 0,
        max_abs_error=None,
        error_ratio=ratio,
        honest_error_ratio=0.1,
        mismatches=mismatches,
        nonfinite=nonfinite,
        first_mismatch=None,
    )


STALE = {
    "all weights, in fp32": (check(4100.0, ELEMENTS), check(0.2, 0), check(4100.0, ELEMENTS)),
    "all weights, in bf16": (check(9.6, ELEMENTS), check(0.5, 0), check(9.6, ELEMENTS)),
    "a bias beside 8192 products": (check(62.0, ELEMENTS - 9000), check(0.3, 0), check(3000.0, ELEMENTS)),
    "integers": (check(None, 900), check(0.0, 0), check(None, 1000)),
    "an answer that is exact for earlier weights": (check(400.0, ELEMENTS), check(0.0, 0), check(500.0, ELEMENTS)),
}
OTHER = {
    # Recorded on an H100: a tanh made of two exponentials, behind a softmax.
    "an error just above the tolerance": (check(1.105, 43), check(0.995, 0), check(4000.0, ELEMENTS)),
    "an output that hardly depends on the weights": (check(1.9, 43), check(0.99, 0), check(2.1, 60)),
    "such an output, exact for earlier weights": (check(1.9, 43), check(0.0, 0), check(2.1, 60)),
    "a few elements far off": (check(3900.0, 43), check(0.2, 0), check(4000.0, ELEMENTS)),
    "rounding in all elements": (check(30.0, ELEMENTS), check(0.9, 0), check(4000.0, ELEMENTS)),
    "rounding that depends on the weights": (check(30.0, ELEMENTS), check(0.2, 0), check(4000.0, ELEMENTS)),
    "weights without effect": (check(30.0, ELEMENTS), check(0.2, 0), check(0.9, 0)),
    "an overflow": (check(None, ELEMENTS, nonfinite=7), check(0.2, 0), check(4000.0, ELEMENTS)),
    "expected values that overflow": (check(4100.0, ELEMENTS), check(0.2, 0), check(None, ELEMENTS, nonfinite=7)),
}


@pytest.mark.parametrize("checks", STALE.values(), ids=STALE)
def test_an_error_of_the_size_of_the_change_is_of_the_weights(checks):
    assert is_stale(*([each] for each in checks))


@pytest.mark.parametrize("checks", OTHER.values(), ids=OTHER)
def test_any_other_error_has_no_certain_cause(checks):
    assert not is_stale(*([each] for each in checks))


def test_every_wrong_output_must_be_of_the_weights():
    stale = [[each] for each in STALE["all weights, in fp32"]]
    right = [check(0.1, 0, path="second"), check(0.1, 0, path="second"), check(0.9, 0, path="second")]
    wrong = [check(1.1, 43, path="second"), check(0.9, 0, path="second"), check(9.0, ELEMENTS, path="second")]
    assert is_stale(*([*each, other] for each, other in zip(stale, right, strict=True)))
    assert not is_stale(*([*each, other] for each, other in zip(stale, wrong, strict=True)))


def test_an_output_without_a_record_has_no_certain_cause():
    wrong, own, moved = STALE["all weights, in fp32"]
    assert not is_stale([], [own], [moved])
    assert not is_stale([wrong], [], [moved])
    assert not is_stale([wrong], [own], [])


NEARER = {
    "exact for the earlier weights": ([check(0.0, 0)], [check(3000.0, 9)]),
    "fp16 beside the earlier weights": ([check(60.0, 9)], [check(3000.0, 9)]),
    "another output is right": (
        [check(60.0, 9), check(0.1, 0, path="output[1]")],
        [check(3000.0, 9), check(0.1, 0, path="output[1]")],
    ),
}
NOT_NEARER = {
    "zeros, as far from both": ([check(4000.0, 9)], [check(4100.0, 9)]),
    "weights that hardly matter": ([check(900.0, 9)], [check(904.0, 9)]),
    "less than half of the error": ([check(600.0, 9)], [check(1000.0, 9)]),
    "a few tolerances": ([check(1.0, 1)], [check(8.0, 1)]),
    "NaN for the call's weights": ([check(1.0, 1)], [check(None, 9, nonfinite=1)]),
    "NaN for both": ([check(None, 9, nonfinite=1)], [check(None, 9, nonfinite=1)]),
    "one of two outputs": (
        [check(60.0, 9), check(90.0, 9, path="output[1]")],
        [check(3000.0, 9), check(90.0, 9, path="output[1]")],
    ),
    "an output that is missing": ([check(60.0, 9, path="output[1]")], [check(3000.0, 9)]),
    "right for the call's weights": ([check(60.0, 9)], [check(0.5, 0)]),
}


@pytest.mark.parametrize("checks", NEARER.values(), ids=NEARER)
def test_an_equal_answer_nearer_to_the_earlier_values_follows_the_earlier_weights(checks):
    assert is_nearer_to_earlier(*checks)


@pytest.mark.parametrize("checks", NOT_NEARER.values(), ids=NOT_NEARER)
def test_an_equal_answer_as_far_from_both_tells_nothing_about_weights(checks):
    assert not is_nearer_to_earlier(*checks)


@pytest.mark.parametrize(("ratio", "is_far"), [(1.1, False), (7.9, False), (8.0, True), (4000.0, True)])
def test_an_error_just_above_the_tolerance_passes_with_other_weights_by_chance(ratio, is_far):
    right_beside = check(0.2, 0, path="output[1]")
    assert is_beyond_chance([check(ratio, 7), right_beside]) is is_far


def test_nan_may_be_an_overflow_with_the_larger_weights():
    assert not is_beyond_chance([check(None, 7, nonfinite=7)])
    assert not is_beyond_chance([check(0.5, 0)])
