"""Statistics of a card, computed again from the samples. Pure."""

from evaluator.records import Baseline, Scorecard, Timing
from evaluator.timing.quote import Quote, over_baseline, quote, unquoted


def requoted(card: Scorecard, timing: Timing) -> Quote:
    """Return the statistics of the card's samples. Sides with weights of different kinds have no speedup (C421)."""
    said = quote(timing.clock, timing.reference_before, timing.submission, timing.reference_after)
    return said if is_like(card) else said._replace(timing=unquoted(said.timing))


def requoted_baselines(card: Scorecard, timing: Timing) -> list[Baseline]:
    """Return the card's baselines with the submission's speedup over each."""
    if not is_like(card):
        return card.baselines
    return [
        over_baseline(each, timing.submission, timing.clock)
        if each.samples is None or each.samples.samples_ms
        else each
        for each in card.baselines
    ]


def is_like(card: Scorecard) -> bool:
    """Return whether both sides computed with weights of the same kind. True for older cards without the field."""
    return card.weights is None or not card.weights.unmatched
