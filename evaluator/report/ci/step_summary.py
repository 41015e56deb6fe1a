"""A scorecard as Markdown, for the summary of a workflow's step. Pure."""

from evaluator.records import GradeMode, Scorecard, Status
from evaluator.report.card.feedback import feedback
from evaluator.report.card.measurement import cases_sentence, measured, shows_cases
from evaluator.report.ci.verdicts import verdict_of
from evaluator.report.layout.markup import code_span, folded
from evaluator.text import duration

_BODY = 4000


def card_markdown(card: Scorecard) -> str:
    """Return verdict, times and reason of a card. Text of the submission stands in code."""
    verdict = verdict_of(card, None)
    lines = [f"### {code_span(verdict.label)}: {verdict.status_text.replace('_', ' ')}", ""]
    if card.status is not Status.CORRECT:
        lines += [code_span(verdict.message), "", *folded("Feedback", feedback(card, characters=_BODY))]
    elif card.timing is not None:
        speedup = "not quoted" if verdict.speedup is None else verdict.speedup_text
        times = (duration(card.timing.reference_median_ms), duration(card.timing.submission_median_ms))
        lines += ["| speedup | reference | submission |", "|---|---|---|", f"| {' | '.join((speedup, *times))} |", ""]
        lines += [f"Measured: {measured(card)}.", ""]
        lines += [f"Cases: {cases_sentence(card.cases)}.", ""] if shows_cases(card) else []
    elif card.mode is GradeMode.CHECK:
        lines += ["Mode check: no time was measured.", ""]
    return "\n".join(lines) + "\n"
