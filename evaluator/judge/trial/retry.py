"""A call that went wrong is made again with the same inputs: an answer that is right then tells of a race.

Or, on `emulated`, of memory that is read before it is written: there the first try differs in what fresh memory holds.
Last it is made with weights that the model had earlier: an answer that is right then comes from a copy made once.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from evaluator.findings import Code, finding
from evaluator.judge.trial.trial_runner import Trial, TrialRunner
from evaluator.records import Check, Fault, Fill, Schedule, Status

_TIMES = 3
_TELLING = frozenset({Code.WRONG_VALUES.value, Code.NOT_FINITE.value})


def retried(
    trial_runner: TrialRunner,
    wrong: Trial,
    index: int,
    seed: int,
    schedules: Iterator[Schedule | None],
    timeout_s: float,
) -> tuple[Fault | None, Check | None]:
    """Make a call again whose values were wrong, a few times if need be, and say what that shows.

    Gives the fault to report, and the check of the answer that was right, if one was.
    """
    if wrong.fault is None or wrong.fault.finding.code not in _TELLING:
        return wrong.fault, None
    before = None if wrong.check is None else wrong.check.schedule
    if before is not None:
        filled = replace(before, fill=Fill.NAN if before.fill is not Fill.NAN else Fill.LARGE)
        again = trial_runner.run(index, seed, schedule=filled, timeout_s=timeout_s)
        if again.fault is None:
            return _unwritten(wrong.fault, before.fill, filled.fill), again.check
    for _ in range(_TIMES):
        again = trial_runner.run(index, seed, schedule=next(schedules), timeout_s=timeout_s)
        if again.fault is None:
            return differing(wrong.fault), again.check
        if again.fault.finding.code not in _TELLING:
            break
    if _is_right_for_earlier_weights(trial_runner, index, seed, schedules, timeout_s):
        message = f"correct for earlier weights, wrong for this call's: {wrong.fault.finding.message}"
        return Fault(Status.WRONG_RESULT, finding(Code.STALE_WEIGHTS, message)), None
    return wrong.fault, None


def _unwritten(fault: Fault, wrong: Fill, right: Fill) -> Fault:
    """Say of a fault that the same call was right where only fresh memory held something else."""
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


def _is_right_for_earlier_weights(
    trial_runner: TrialRunner, index: int, seed: int, schedules: Iterator[Schedule | None], timeout_s: float
) -> bool:
    """Give the model weights back that it had, and see whether the same inputs lead to the right answer then."""
    return any(
        trial_runner.run(index, seed, schedule=next(schedules), timeout_s=timeout_s, worn=worn).fault is None
        for worn in trial_runner.earlier_weights
    )


def differing(fault: Fault) -> Fault:
    """Say of a fault that an equal call was right."""
    if fault.finding.code not in _TELLING:
        return fault
    message = f"identical calls differ: one answer is correct, another is not: {fault.finding.message}"
    return Fault(Status.WRONG_RESULT, finding(Code.DIFFERS, message))
