"""Do the work of a grade until its deadline, which is an outcome like any other."""

from collections.abc import Callable

from evaluator.deadline import DeadlineReached, Guard
from evaluator.progress import Stopwatch
from evaluator.records import Outcome, Scorecard, Seeds

LastResort = Callable[[Scorecard], None]
"""Is given a card in another thread, where a grade is stuck seconds behind its deadline.

It should keep the card and end the process."""
Worked = tuple[Outcome, Seeds | None]


def in_time(
    stopwatch: Stopwatch,
    work: Callable[[Guard], Worked],
    card_of: Callable[[Outcome], Scorecard],
    last_resort: LastResort | None,
) -> Worked:
    """Give what `work` comes to, or that time ran out. What was known when that happened stands."""

    def too_late() -> Outcome:
        return Outcome().failed(*stopwatch.deadline.verdict(stopwatch.at))

    def end_it() -> None:
        if last_resort is not None:
            last_resort(card_of(too_late()))

    done: Worked | None = None
    try:
        with Guard(stopwatch.deadline, end_it) as guard:
            done = work(guard)
    except DeadlineReached:
        return (too_late(), None) if done is None else done
    return done
