"""Recomputation of the verdicts of all cards of a run, optionally into a new run folder."""

import contextlib
from pathlib import Path
from typing import NamedTuple

import msgspec

from evaluator.batch.runs.index import Index
from evaluator.batch.runs.refusals import read_refusals
from evaluator.batch.runs.run_folder import RunFolder, opened
from evaluator.cards.consistency import inconsistencies
from evaluator.cards.regrade import CardChange, changes, regraded
from evaluator.cards.time_consistency import Contradiction
from evaluator.errors import CardError
from evaluator.files.card_files import read_card, write_card, write_whole


class Regraded(NamedTuple):
    """Result of a regraded run: number of cards read, changed verdicts, unreadable cards.

    `contradicting` maps the path of an inconsistent card to its contradictions.
    """

    cards: int
    changes: list[CardChange]
    broken: list[CardError]
    contradicting: dict[str, list[Contradiction]]

    def document(self) -> dict[str, object]:
        """Return the result for JSON, without the unreadable cards."""
        contradictions = {card: [fault._asdict() for fault in faults] for card, faults in self.contradicting.items()}
        changes = [change._asdict() for change in self.changes]
        return {"version": 1, "cards": self.cards, "changes": changes, "contradictions": contradictions}


def regrade(run: Path, output: Path | None) -> Regraded:
    """Recompute the verdicts of all cards.

    Args:
        run: the folder of a run; unchanged.
        output: the folder of a new run for the recomputed cards; None only compares.

    Raises:
        CardError: `run` is no run folder.
        UsageError: `output` is in use.
    """
    folder = RunFolder(run)
    manifest = folder.read_manifest()
    differences: list[CardChange] = []
    contradicting: dict[str, list[Contradiction]] = {}
    count = 0
    with contextlib.ExitStack() as stack:
        index = stack.enter_context(Index(folder))
        target = stack.enter_context(opened(output, manifest)) if output is not None else None
        if target is not None:
            lines = (msgspec.json.encode(planned) + b"\n" for planned in folder.read_plan().values())
            write_whole(target.plan, b"".join(lines))
            refused = (msgspec.json.encode(refusal) + b"\n" for refusal in read_refusals(folder))
            write_whole(target.refused, b"".join(refused))
        broken = list(index.broken)
        for card in sorted(index.rows):
            try:
                before = read_card(folder.cards / card, folder.cards)
            except CardError as error:  # in a part of the card that the index did not read
                broken.append(error)
                continue
            after = regraded(before)
            count += 1
            differences += changes(before, after)
            if contradictions := inconsistencies(before, intervals=False):
                contradicting[card] = contradictions
            if target is not None:
                write_card(after, target.cards / card, named=False)
        return Regraded(count, differences, broken, contradicting)
