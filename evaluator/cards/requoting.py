"""Statistics of a card, computed again from the samples. Pure."""

from msgspec.structs import replace

from evaluator.records import Baseline, Scorecard, Timing
from evaluator.timing.quote import Quote, over_baseline, quote, unquoted


def requoted(card: Scorecard, timing: Timing) -> Quote:
    """Return the statistics of the card's samples. Sides with weights of different kinds have no speedup (C421)."""
    said = quote(timing.clock, timing.reference_before, timing.submission, timing.reference_after)
    return said if card.has_like_weights else said._replace(timing=unquoted(said.timing))


def requoted_baselines(card: Scorecard, timing: Timing) -> list[Baseline]:
    """Return the card's baselines with the submission's speedup over each."""
    if not card.has_like_weights:
        nothing = {"speedup": None, "speedup_low": None, "speedup_high": None, "significant": None}
        return [replace(each, **nothing) for each in card.baselines]
    return [
        over_baseline(each, timing.submission, timing.clock)
        if each.samples is None or each.samples.samples_ms
        else each
        for each in card.baselines
    ]
