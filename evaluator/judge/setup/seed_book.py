"""Seeds of a grade: from the operating system, or from the scorecard in a replay.

A call's seed determines the input distribution (`DistributionMix.pick`), so a replay repeats the distributions too.
"""

import copy
import itertools
import secrets
from collections import Counter
from collections.abc import Iterator

from evaluator.judge.reference.input_distributions import PROFILES
from evaluator.judge.setup.distribution_mix import AS_GIVEN_ALONE, DistributionMix
from evaluator.records import (
    CancellingRows,
    CaseName,
    CaseResult,
    Check,
    Fill,
    Order,
    Profile,
    Schedule,
    Scorecard,
    Seeds,
    seed_text,
)

_SCHEDULES = (
    (Order.ASCENDING, 1),
    (Order.DESCENDING, 1),
    (Order.SHUFFLED, 1),
    (Order.SHUFFLED, 2),
    (Order.ASCENDING, 2),
)
_FILLS = (Fill.NAN, Fill.LARGE, Fill.NEGATIVE, Fill.ORDINARY)
"""One fewer than the orders: twenty calls combine all orders with all fills, and any four in turn use every fill."""
UNTIMED_CALLS = 16
_UNTIMED_MORE = 17
"""Without timing, 16 to 36 calls are checked, and a submission cannot know the number. On a GPU, checked and timed
calls together are as many, and every timed call is verified."""
_LEAST_MORE = 4
"""Most of these calls have the problem's own values, and show reduced precision in secret rows. A problem with all
distributions has 15 other calls, and of these two have such rows."""
_MORE_PROOFS = 12
"""Further calls at most where the distributions of the problem are evidence, and too few calls were."""
FEWEST_CALLS = 8
"""Checked calls of a slow submission at least: all orders of threads, and each fill of fresh memory twice."""


def fresh_seed() -> int:
    """Return a 63-bit seed from the operating system."""
    return secrets.randbits(63)


class SeedBook:
    """Seeds of one grade. A replay uses the card's seeds in order, and fresh seeds afterwards."""

    def __init__(self, card: Scorecard | None, weight: int | None = None) -> None:
        """Use the seeds of `card`, if given. `weight` is the weight seed of an existing reference."""
        self._card = card
        card_seeds = None if card is None else card.seeds
        drawn = fresh_seed() if card_seeds is None else int(card_seeds.weight, 16)
        self.weight = drawn if weight is None else weight
        self.distribution_mix = AS_GIVEN_ALONE
        self._timing = None if card is None else card.timing

    @property
    def replayed_cases(self) -> list[CaseResult] | None:
        """The cases of the replayed card; None without a replay."""
        return None if self._card is None else self._card.cases

    def elsewhere(self) -> "SeedBook":
        """Return the seeds of a further case: a card has the seeds of the timed calls of its own case only."""
        other = copy.copy(self)
        other._timing = None  # noqa: SLF001 - a copy of this object
        return other

    def record(self) -> Seeds:
        """Return the seed record of a card, without the seeds of calls."""
        return Seeds(
            weight=seed_text(self.weight),
            replayed_from=None if self._card is None else self._card.graded_at,
            profiles=list(self.distribution_mix.use),
            cancelling_rows=[CancellingRows(site.tensor, site.dim) for site in self.distribution_mix.row_sites],
        )

    def settle(self, distribution_mix: DistributionMix) -> None:
        """Set the distributions and the cancelling rows of calls: those of `distribution_mix`, or a replayed card's."""
        self.distribution_mix = distribution_mix
        seeds = None if self._card is None else self._card.seeds
        if seeds is None:
            return
        rows = {(row.tensor, row.dim) for row in seeds.cancelling_rows}
        sites = tuple(site for site in distribution_mix.row_sites if (site.tensor, site.dim) in rows)
        use = tuple(seeds.profiles) or self._profiles_of_checks()
        self.distribution_mix = distribution_mix._replace(use=use, row_sites=sites)

    def _profiles_of_checks(self) -> tuple[Profile, ...]:
        """Return the distributions of the card's checks: older cards from a GPU list the distributions nowhere else."""
        profiles = {check.profile for check in self._card.checks} if self._card is not None else set()
        return tuple(profile for profile in PROFILES if profile in profiles)

    def _checks_at(self, size: CaseName | None) -> list[Check]:
        """Return the replayed card's checks at a size; None stands for the size of the card."""
        if (card := self._card) is None:
            return []
        return [check for check in card.checks if (check.size or card.problem.size) == (size or card.problem.size)]

    def checks(self, size: CaseName | None = None) -> list[int]:
        """Return the seeds of the calls that are always checked at a size: the card's, and fresh seeds for others.

        Every distribution occurs. One call is repeated with the same inputs at a random later position: never the
        first, which alone has no cancelling rows.
        """
        card_seeds = [int(check.seed, 16) for check in self._checks_at(size)]
        profile_counts = Counter(self.distribution_mix.pick(seed) for seed in card_seeds)
        fresh = []
        for profile in self.distribution_mix.checks():
            if profile_counts[profile]:
                profile_counts[profile] -= 1
            else:
                fresh.append(self.distribution_mix.seed_for(profile))
        if len(fresh) > 1 and not card_seeds:
            first = 1 + secrets.randbelow(len(fresh) - 1)
            fresh.insert(first + 1 + secrets.randbelow(len(fresh) - first), fresh[first])
        return [*card_seeds, *fresh]

    def proofs(self) -> Iterator[int]:
        """Yield the seeds of further calls with distributions that are evidence; none without such distributions."""
        for profile in itertools.islice(self.distribution_mix.proofs(), _MORE_PROOFS):
            yield self.distribution_mix.seed_for(profile)

    def more_checks(self, count: int, size: CaseName | None = None) -> list[int]:
        """Return the seeds of further calls where none is timed, after `count` calls. How many is random."""
        if self._checks_at(size):
            return [fresh_seed() for _ in range(UNTIMED_CALLS - count)]
        least = max(UNTIMED_CALLS - count, _LEAST_MORE)
        return [fresh_seed() for _ in range(least + secrets.randbelow(_UNTIMED_MORE))]

    def schedules(self, size: CaseName | None = None) -> Iterator[Schedule]:
        """Yield emulator schedules of the calls at a size.

        Each order comes with one worker, then shuffled and ascending with two, repeatedly.
        The fill of fresh memory changes with every call.
        """
        card_schedules = [check.schedule for check in self._checks_at(size)]
        yield from (schedule for schedule in card_schedules if schedule is not None)
        for (order, workers), fill in zip(itertools.cycle(_SCHEDULES), itertools.cycle(_FILLS), strict=False):
            yield Schedule(order=order, seed=seed_text(fresh_seed()), workers=workers, fill=fill)

    def timed(self, side: str) -> Iterator[int]:
        """Yield the seeds of a side's timed calls: `reference_before`, `submission` or `reference_after`.

        The reference's own calls all use the problem's own values: other calls are not quoted, and only a submission
        could profit from knowing the distribution.
        """
        seeds = [] if self._timing is None else getattr(self._timing, side).seeds
        yield from (int(text, 16) for text in seeds)
        while True:
            yield fresh_seed() if side == "submission" else self.distribution_mix.seed_for(Profile.AS_GIVEN)
