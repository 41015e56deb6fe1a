"""Run of a grade until its deadline; a reached deadline is an ordinary outcome."""

from collections.abc import Callable

from evaluator.deadline import DeadlineReached, Guard
from evaluator.progress import Stopwatch
from evaluator.records import Outcome, Scorecard, Seeds

LastResort = Callable[[Scorecard], None]
"""Called from another thread with a card, if a grade is stuck seconds after its deadline.

The callback should store the card and end the process.
"""
Worked = tuple[Outcome, Seeds | None]


def in_time(
    stopwatch: Stopwatch,
    work: Callable[[Guard], Worked],
    card_of: Callable[[Outcome], Scorecard],
    last_resort: LastResort | None,
) -> Worked:
    """Return the result of `work`, or the outcome of a reached deadline. A finished result precedes the deadline."""

    def too_late() -> Outcome:
        return Outcome().failed(*stopwatch.deadline.verdict(stopwatch.at))

    def end_it() -> None:
        if last_resort is not None:
            last_resort(card_of(too_late()))

    done: Worked | None = None
    guard = Guard(stopwatch.deadline, end_it)
    try:
        with guard:
            done = work(guard)
    except DeadlineReached:
        guard.end()  # The exception may have interrupted the first end. A watch that goes on would end the process.
        return (too_late(), None) if done is None else done
    return done
