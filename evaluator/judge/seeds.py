"""Where the seeds of a grade come from: the operating system, or the card that is being replayed."""

from collections.abc import Iterator

from evaluator.judge.trial import fresh_seed
from evaluator.records import Order, Schedule, Scorecard, Seeds, seed_text

_SCHEDULES = (
    (Order.ASCENDING, 1),
    (Order.DESCENDING, 1),
    (Order.SHUFFLED, 1),
    (Order.SHUFFLED, 2),
    (Order.ASCENDING, 2),
)


class SeedBook:
    """The seeds of one grade. A replay takes a card's, in their order, and draws fresh ones where it has no more."""

    def __init__(self, card: Scorecard | None) -> None:
        """Take the seeds of `card`, or none."""
        self._card = card
        known = None if card is None else card.seeds
        self.weight = fresh_seed() if known is None else int(known.weight, 16)

    def record(self) -> Seeds:
        """Write down what a card says of the seeds that stand beside no call."""
        return Seeds(weight=seed_text(self.weight), replayed_from=None if self._card is None else self._card.graded_at)

    @property
    def checks_known(self) -> int:
        """Say how many checked calls the card has: a timed call that failed stands among them."""
        return 0 if self._card is None else len(self._card.checks)

    def checks(self) -> Iterator[int]:
        """Give the seeds of the checked calls."""
        return _then_fresh([] if self._card is None else [check.seed for check in self._card.checks])

    def schedules(self) -> Iterator[Schedule]:
        """Give the emulator's schedules: each order with one worker, then shuffled and ascending with two."""
        known = [] if self._card is None else [check.schedule for check in self._card.checks]
        yield from (schedule for schedule in known if schedule is not None)
        for order, workers in _SCHEDULES:
            yield Schedule(order=order, seed=seed_text(fresh_seed()), workers=workers)

    def timed(self, side: str) -> Iterator[int]:
        """Give the seeds of the timed calls of a side: `reference_before`, `submission` or `reference_after`."""
        timing = None if self._card is None else self._card.timing
        return _then_fresh([] if timing is None else getattr(timing, side).seeds)


def _then_fresh(known: list[str]) -> Iterator[int]:
    yield from (int(text, 16) for text in known)
    while True:
        yield fresh_seed()
