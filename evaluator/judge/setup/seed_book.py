"""Where the seeds of a grade come from: the operating system, or the card that is being replayed.

A call's seed says which values its inputs have (`DistributionMix.pick`), so a card's seeds repeat those too.
"""

import itertools
import secrets
from collections.abc import Iterator

from evaluator.judge.inputs.input_distributions import PROFILES
from evaluator.judge.setup.distribution_mix import AS_GIVEN_ALONE, DistributionMix
from evaluator.records import Fill, Order, Profile, Schedule, Scorecard, Seeds, seed_text

_SCHEDULES = (
    (Order.ASCENDING, 1),
    (Order.DESCENDING, 1),
    (Order.SHUFFLED, 1),
    (Order.SHUFFLED, 2),
    (Order.ASCENDING, 2),
)
_FILLS = (Fill.NAN, Fill.LARGE, Fill.NEGATIVE, Fill.ORDINARY)
"""One fewer than the orders, so that twenty calls have each with each; and any four calls in turn have all of them."""
_UNTIMED_CALLS = 16
_UNTIMED_MORE = 17
"""Where nothing is timed there are 16 to 32 calls, and a submission cannot know how many: on a GPU there are as many
checked ones, and then timed ones, each of which is checked too."""


def fresh_seed() -> int:
    """Draw a 63-bit seed from the operating system."""
    return secrets.randbits(63)


class SeedBook:
    """The seeds of one grade. A replay takes a card's, in their order, and draws fresh ones where it has no more."""

    def __init__(self, card: Scorecard | None, weight: int | None = None) -> None:
        """Take the seeds of `card`, or none; `weight` is that of a reference which stands already."""
        self._card = card
        known = None if card is None else card.seeds
        drawn = fresh_seed() if known is None else int(known.weight, 16)
        self.weight = drawn if weight is None else weight
        self.distribution_mix = AS_GIVEN_ALONE

    def record(self) -> Seeds:
        """Write down what a card says of the seeds that stand beside no call."""
        return Seeds(
            weight=seed_text(self.weight),
            replayed_from=None if self._card is None else self._card.graded_at,
            profiles=list(self.distribution_mix.use),
        )

    def settle(self, distribution_mix: DistributionMix) -> None:
        """Settle which values calls may have: those of `distribution_mix`, or the card's own."""
        known = None if self._card is None else self._card.seeds
        self.distribution_mix = (
            distribution_mix if known is None else distribution_mix._replace(use=tuple(known.profiles) or self._seen())
        )

    def _seen(self) -> tuple[Profile, ...]:
        """Say which values the card's checks had: once, a card from a GPU did not name them elsewhere."""
        seen = {check.profile for check in self._card.checks} if self._card is not None else set()
        return tuple(profile for profile in PROFILES if profile in seen)

    def checks(self, *, timed: bool = True) -> list[int]:
        """Give the seeds of the checked calls: a card's, and fresh ones for what it lacks.

        Every profile is among them, and one call comes twice, with the same inputs, at some later place. Where no
        `timed` calls follow there are more, whose values are as mixed as theirs would be; how many more is drawn.
        """
        known = [] if self._card is None else [int(check.seed, 16) for check in self._card.checks]
        fresh = [self.distribution_mix.seed_for(profile) for profile in self.distribution_mix.checks()[len(known) :]]
        if fresh and not known:
            first = secrets.randbelow(len(fresh))
            fresh.insert(first + 1 + secrets.randbelow(len(fresh) - first), fresh[first])
        wanted = _UNTIMED_CALLS + (0 if known else secrets.randbelow(_UNTIMED_MORE))
        more = 0 if timed else wanted - len(known) - len(fresh)
        return [*known, *fresh, *(fresh_seed() for _ in range(more))]

    def schedules(self) -> Iterator[Schedule]:
        """Give the emulator's schedules: each order with one worker, shuffled and ascending with two, and so on.

        What fresh memory holds changes with every call.
        """
        known = [] if self._card is None else [check.schedule for check in self._card.checks]
        yield from (schedule for schedule in known if schedule is not None)
        for (order, workers), fill in zip(itertools.cycle(_SCHEDULES), itertools.cycle(_FILLS), strict=False):
            yield Schedule(order=order, seed=seed_text(fresh_seed()), workers=workers, fill=fill)

    def timed(self, side: str) -> Iterator[int]:
        """Give the seeds of the timed calls of a side: `reference_before`, `submission` or `reference_after`.

        Only a submission could gain by knowing which values a call has: the reference's own calls, of which only those
        with values as given are quoted, have no others.
        """
        timing = None if self._card is None else self._card.timing
        yield from (int(text, 16) for text in ([] if timing is None else getattr(timing, side).seeds))
        while True:
            yield fresh_seed() if side == "submission" else self.distribution_mix.seed_for(Profile.AS_GIVEN)
