"""Who has a workshop for a grade: a new one for each, or the one that stands as long as the problem stays the same."""

import contextlib
import sys
from collections.abc import Iterator
from typing import Self

from evaluator.deadline import Deadline
from evaluator.isolation import Starter
from evaluator.judge.baseline import ReferenceTimer
from evaluator.judge.early import Early
from evaluator.judge.foothold import Foothold
from evaluator.judge.memory_plan import refuse_what_does_not_fit
from evaluator.judge.seeds import SeedBook
from evaluator.judge.terms import Terms
from evaluator.judge.workshop import Workshop
from evaluator.records import Scorecard


class Keeper:
    """Hands out workshops. A context manager: leaving it ends what was kept."""

    def __init__(
        self, starter: Starter, *, lasting: bool, early: Early | None = None, foothold: Foothold | None = None
    ) -> None:
        """Hand out workshops with runners of `starter`; `lasting` ones are kept between grades on the same terms.

        `early` and `foothold` are what was begun of the one grade of a keeper that is not.
        """
        self._starter = starter
        self._lasting = lasting
        self._early = early
        self._foothold = foothold
        self._kept: tuple[Workshop, ReferenceTimer] | None = None
        self._leaving = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._drop()

    def make_room(self, terms: Terms) -> None:
        """End what is kept on other terms. Raises UsageError where a workshop on these would have too little memory."""
        if self._kept is not None and self._kept[0].terms == terms:
            return
        self._drop()
        refuse_what_does_not_fit(terms.problem, terms.size, terms.gpu)

    @contextlib.contextmanager
    def workshop(
        self, terms: Terms, source: str, card: Scorecard | None, deadline: Deadline | None = None
    ) -> Iterator[tuple[Workshop, ReferenceTimer]]:
        """Have a workshop for one submission, until its `deadline`, and the reference's side of its timing.

        `card` is one to replay. A workshop in which a grade ended by an exception is not used again.
        """
        if not self._lasting:
            with (
                Workshop(
                    terms,
                    source,
                    SeedBook(card),
                    starter=self._starter,
                    early=self._early,
                    foothold=self._foothold,
                    deadline=deadline,
                ) as shop,
                ReferenceTimer(shop) as timer,
            ):
                yield shop, timer
            return
        if self._kept is None:
            shop = Workshop(terms, source, SeedBook(card), starter=self._starter, lasting=True, deadline=deadline)
            self._kept = (
                self._leaving.enter_context(shop),
                self._leaving.enter_context(ReferenceTimer(shop, lasting=True)),
            )
        else:
            shop, _ = self._kept
            shop.turn_to(source, SeedBook(card, weight=shop.seeds.weight), deadline)
        try:
            yield self._kept
        except BaseException:
            self._drop()
            raise

    def kill_all(self) -> None:
        """Begin to kill every process that a grade waits for. May be called from another thread."""
        self._starter.condemn_all()

    def _drop(self) -> None:
        self._kept = None
        self._leaving.__exit__(*sys.exc_info())
