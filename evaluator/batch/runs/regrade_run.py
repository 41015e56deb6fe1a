"""Draw the conclusions of all cards of a run again, and write them to another folder where that is wanted."""

import contextlib
from pathlib import Path
from typing import NamedTuple

import msgspec

from evaluator.batch.runs.index import Index
from evaluator.batch.runs.run_folder import RunFolder, opened
from evaluator.cards.consistency import Contradiction, inconsistencies
from evaluator.cards.regrade import Change, changes, regraded
from evaluator.errors import CardError
from evaluator.files.card_files import read_card, write_card, write_whole


class Regraded(NamedTuple):
    """What came of a run: how many cards were read, what is concluded otherwise, and what is no card.

    `contradicting` are the cards that contradict themselves, by their places.
    """

    cards: int
    changes: list[Change]
    broken: list[CardError]
    contradicting: dict[str, list[Contradiction]]


def regrade(run: Path, output: Path | None) -> Regraded:
    """Do it.

    Args:
        run: the folder of a run; it stays as it is.
        output: the folder of a new run for the cards as they are now; None only compares.

    Raises:
        CardError: `run` is no run's folder.
        UsageError: `output` is taken.
    """
    folder = RunFolder(run)
    manifest = folder.read_manifest()
    found: list[Change] = []
    contradicting: dict[str, list[Contradiction]] = {}
    count = 0
    with contextlib.ExitStack() as stack:
        index = stack.enter_context(Index(folder))
        target = stack.enter_context(opened(output, manifest)) if output is not None else None
        if target is not None:
            lines = (msgspec.json.encode(planned) + b"\n" for planned in folder.read_plan().values())
            write_whole(target.plan, b"".join(lines))
        broken = list(index.broken)
        for place in sorted(index.rows):
            try:
                before = read_card(folder.cards / place, folder.cards)
            except CardError as error:  # in what the index does not read of a card
                broken.append(error)
                continue
            after = regraded(before)
            count += 1
            found += changes(before, after)
            if untrue := inconsistencies(before, intervals=False):
                contradicting[place] = untrue
            if target is not None:
                write_card(after, target.cards / place, named=False)
        return Regraded(count, found, broken, contradicting)
