"""Retry of a wrong call with the same inputs: a correct answer then proves a race.

On `emulated`, the first retry changes only the content of fresh memory: a correct answer proves a read of uninitialised
memory. Another uses earlier weights of the model. The last call has the problem's own values, and is tried with earlier
weights too. On a GPU, no further cause is looked for after `SEARCH_S`: other grades wait for the GPU. The verdict is
the same.

An equal answer follows no change of the weights. A correct answer for earlier weights alone proves little: an error
just above the tolerance passes with other weights by chance, and an output that hardly depends on the weights is
within the tolerance for all weights. A stale answer does not follow the change of the weights, so the error is a part
of the change. Three comparisons show the part, in each wrong output:

- `wrong`: the wrong answer with the expected values of the call;
- `own`: the correct answer for earlier weights with the expected values for earlier weights;
- `moved`: the same correct answer with the expected values of the call: the error of a completely stale answer.
"""

import math
import time
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from evaluator.findings import Code, Trait, entry_of, finding, has_trait
from evaluator.findings.comparing import HARDLY_BEYOND, NEARLY_ALL, WEIGHT_LEFT_OUT, WEIGHTS_IN_EACH_CALL
from evaluator.judge.answer.other_values import wrong_for
from evaluator.judge.reference.changing_weights import CallWeights
from evaluator.judge.trial.trial import EarlierWeightsTrial, Trial
from evaluator.judge.trial.trial_runner import TrialRunner
from evaluator.records import Check, Fault, Fill, Finding, Schedule, Status, TensorCheck

_TIMES = 3
SEARCH_S = 2.0


def retried(
    trial_runner: TrialRunner,
    wrong: Trial,
    index: int,
    seed: int,
    schedules: Iterator[Schedule | None],
    timeout_s: float,
    *,
    search_s: float = math.inf,
) -> tuple[Fault | None, Check | None]:
    """Repeat a call with wrong values, several times if needed and up to `search_s`, and interpret the answers.

    Return the fault to report, and the check of the deciding answer, if other than the wrong one. A wrong answer for
    other input values is confirmed by a call with the problem's own values.
    """
    if wrong.fault is None or not has_trait(wrong.fault.finding, Trait.WRONG_VALUES):
        return wrong.fault, None
    before = None if wrong.check is None else wrong.check.schedule
    if before is not None:
        filled = replace(before, fill=Fill.NAN if before.fill is not Fill.NAN else Fill.LARGE)
        again = trial_runner.run(index, seed, schedule=filled, timeout_s=timeout_s, explain=False)
        if again.fault is None:
            return _unwritten(wrong.fault, before.fill, filled.fill), again.check
    ends_s = time.monotonic() + search_s
    for _ in range(_TIMES):
        again = trial_runner.run(index, seed, schedule=next(schedules), timeout_s=timeout_s, explain=False, wrong=wrong)
        if again.fault is None:
            return differing(wrong.fault), again.check
        if not has_trait(again.fault.finding, Trait.WRONG_VALUES) or time.monotonic() > ends_s:
            break
    if time.monotonic() > ends_s:
        return wrong.fault, None
    return _with_cause(trial_runner, wrong, wrong.fault, index, seed, schedules, timeout_s, ends_s)


def _with_cause(
    trial_runner: TrialRunner,
    wrong: Trial,
    fault: Fault,
    index: int,
    seed: int,
    schedules: Iterator[Schedule | None],
    timeout_s: float,
    ends_s: float,
) -> tuple[Fault, Check | None]:
    """Return the fault of an answer that is wrong each time, with a cause in the weights, and the deciding check.

    No part of the search begins after `ends_s`.
    """
    cause = _weights_fault(trial_runner, wrong, index, seed, schedules, timeout_s, ends_s)
    code = fault.finding.code
    if cause is not None and (cause.finding.code == Code.STALE_WEIGHTS or code == Code.WRONG_VALUES):
        return cause, None
    if code == Code.WRONG_ON_OTHER_VALUES and time.monotonic() <= ends_s:
        fresh = trial_runner.own_values_seed()
        own_trial = trial_runner.run(
            index, fresh, schedule=next(schedules), timeout_s=timeout_s, own_values=True, second_opinion=True
        )
        if own_trial.fault is not None and has_trait(own_trial.fault.finding, Trait.WRONG_VALUES):
            # Wrong for the problem's own values too, after a correct call. Other values may hide the weights: after
            # constant rows, a batch norm leaves nothing of a linear layer's weights but signs.
            own_fault = _weights_fault(
                trial_runner, own_trial, index, fresh, schedules, timeout_s, ends_s, own_values=True
            )
            return own_fault or own_trial.fault, own_trial.check
    return cause or fault, None


def _comparison(wrong_values: Finding) -> str:
    """Return the message without the values of the inputs: stale weights are wrong for all values."""
    return wrong_values.message.removeprefix(wrong_for(str(wrong_values.details.get("profile"))))


def _unwritten(fault: Fault, wrong: Fill, right: Fill) -> Fault:
    """Return the fault for a call that became correct when only the content of fresh memory changed."""
    message = (
        f"a kernel reads uninitialised memory: with fresh memory full of {_WORDS[right]} the answer is correct; with "
        f"the same inputs, the same thread order and {_WORDS[wrong]} it is wrong: {fault.finding.message}"
    )
    return Fault(Status.WRONG_RESULT, finding(Code.DIFFERS, message))


_WORDS = {
    Fill.NAN: "NaN",
    Fill.LARGE: "large numbers",
    Fill.NEGATIVE: "large negative numbers",
    Fill.ORDINARY: "ordinary numbers",
}


def _weights_fault(
    trial_runner: TrialRunner,
    wrong: Trial,
    index: int,
    seed: int,
    schedules: Iterator[Schedule | None],
    timeout_s: float,
    ends_s: float,
    *,
    own_values: bool = False,
) -> Fault | None:
    """Return the fault with a cause from answers with earlier weights, until `ends_s`; None without a cause.

    Earlier weights with a correct answer, if the weights explain the error, are a separate finding. Equal answers for
    different weights, and a correct answer for the constructed weights, extend the message.
    """
    if wrong.fault is None or wrong.check is None:
        return None
    cause: Fault | None = None

    def run(weights: CallWeights) -> EarlierWeightsTrial | None:
        return trial_runner.run_with_weights(
            index, seed, weights, schedule=next(schedules), timeout_s=timeout_s, own_values=own_values
        )

    for weights in trial_runner.earlier_weights:
        if time.monotonic() > ends_s:
            break
        if (trial := run(weights)) is None:
            continue
        if trial.is_right and is_stale(wrong.check.tensors, trial.with_earlier, trial.with_current):
            message = f"correct for earlier weights, wrong for this call's: {_comparison(wrong.fault.finding)}"
            return Fault(Status.WRONG_RESULT, finding(Code.STALE_WEIGHTS, message))
        if trial.some_bits == wrong.some_bits and is_nearer_to_earlier(trial.with_earlier, trial.with_current):
            cause = cause or _with(wrong.fault, "the answer is the same for earlier weights", WEIGHTS_IN_EACH_CALL)
        elif (
            trial.is_right
            and weights.seed is None
            and is_beyond_chance(wrong.check.tensors)
            and time.monotonic() <= ends_s
            and (again := run(weights)) is not None  # A race may be right once.
            and again.is_right
        ):
            cause = cause or _with(wrong.fault, "with the weights as constructed, the answer is right", WEIGHT_LEFT_OUT)
    return cause


def _with(fault: Fault, clause: str, next_step: str) -> Fault:
    """Return a fault with a clause, and with the next step unless the fault has a step from a cause."""
    original = fault.finding
    is_usual = original.next_step in (entry_of(original).next_step, NEARLY_ALL, HARDLY_BEYOND)
    step = next_step if is_usual else original.next_step
    return fault._replace(finding=replace(original, message=f"{original.message}; {clause}", next_step=step))


def differing(fault: Fault) -> Fault:
    """Return the fault for a wrong answer after a correct answer to an equal call."""
    if not has_trait(fault.finding, Trait.WRONG_VALUES):
        return fault
    message = f"identical calls differ: one answer is correct, another is not: {fault.finding.message}"
    return Fault(Status.WRONG_RESULT, finding(Code.DIFFERS, message))


_NEARER = 8.0
"""Least error of the wrong answer, in errors of the correct answer. A completely stale answer is as far from the
earlier expected values as the correct answer, and 8 times as far from the call's. Let e be the error, and d the
difference of both expected values: |e - d| < |e| / 8, and hence |e - d| < |d| / 7. The error is the effect of the
weights, up to a seventh. A random error of n elements is so near with a probability below 7**(1 - n)."""
_HONEST_PART = 0.25
"""Least error of a correct answer, in tolerances: the honest reference's, where the honest error sets the tolerance."""
_ROUNDING = 1 / 64
"""Least error of a wrong answer, as a part of the error of a completely stale answer. Weights change by 15 to 25 %,
or 3000 to 5000 tolerances in fp32; up to 64 tolerances may be rounding (`rounding_of_call`). A submission may keep
only a small weight, as a bias beside a long sum."""
_MOST = 0.5
"""Least number of wrong elements, as a part of the elements that a completely stale answer has wrong."""


def is_stale(wrong: Sequence[TensorCheck], earlier: Sequence[TensorCheck], current: Sequence[TensorCheck]) -> bool:
    """Return whether the errors of all wrong outputs are a part of the change of the weights."""
    right = {check.path: check for check in earlier}
    stale = {check.path: check for check in current}
    wrong_checks = [check for check in wrong if not check.ok]
    return bool(wrong_checks) and all(
        check.path in right and check.path in stale and _is_of_weights(check, right[check.path], stale[check.path])
        for check in wrong_checks
    )


def is_nearer_to_earlier(earlier: Sequence[TensorCheck], current: Sequence[TensorCheck]) -> bool:
    """Return whether an answer that is the same for two sets of weights follows the earlier set.

    `earlier` is the comparison with the expected values for the earlier weights, `current` with the call's. Every wrong
    output is nearer to the earlier values, by half of the error and by several tolerances. Zeros, and an output that
    hardly depends on the weights, are as far from both.
    """
    ratios = {check.path: _ratio(check) for check in earlier}
    pairs = [(ratios.get(check.path), _ratio(check)) for check in current if not check.ok]
    return bool(pairs) and all(
        near is not None and far is not None and near <= far / 2 and far - near >= _NEARER for near, far in pairs
    )


def is_beyond_chance(wrong: Sequence[TensorCheck]) -> bool:
    """Return whether all outputs are finite, and wrong ones too far off to be right by chance with other weights."""
    ratios = [_ratio(check) for check in wrong if not check.ok]
    return bool(ratios) and all(ratio is not None and ratio >= _NEARER for ratio in ratios)


def _is_of_weights(wrong: TensorCheck, earlier: TensorCheck, current: TensorCheck) -> bool:
    error, least, most = (_ratio(check) for check in (wrong, earlier, current))
    if error is None or least is None or most is None:
        return False
    is_far = error >= _NEARER * max(least, _HONEST_PART) and error >= most * _ROUNDING
    return is_far and most > 1 and wrong.mismatches >= current.mismatches * _MOST


def _ratio(check: TensorCheck) -> float | None:
    """Return the largest error in tolerances; infinite for integers that differ, None if an element is not finite."""
    if check.nonfinite:
        return None
    return math.inf if check.error_ratio is None else check.error_ratio
