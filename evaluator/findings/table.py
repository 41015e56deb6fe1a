"""The table of all findings, composed of its families; constructor, entry and traits of a finding."""

from evaluator.findings import building, comparing, isolation, machine, running, submission, timing
from evaluator.findings.codes import Code, Entry, Trait
from evaluator.records import Finding

FAMILIES: dict[str, dict[Code, Entry]] = {
    "S": submission.ENTRIES,
    "B": building.ENTRIES,
    "R": running.ENTRIES,
    "C": comparing.ENTRIES,
    "T": timing.ENTRIES,
    "I": isolation.ENTRIES,
    "X": machine.ENTRIES,
}
# In the order of `Code`. A code without an entry in its family raises KeyError here.
ENTRIES: dict[Code, Entry] = {code: FAMILIES[code.value[0]][code] for code in Code}

_MOST_CHARACTERS = 4000


def finding(
    code: Code,
    message: str,
    *,
    line: int | None = None,
    next_step: str | None = None,
    **details: str | float | bool | None,
) -> Finding:
    """Return a finding of `code` with `message`. The next step defaults to the table's entry.

    Message and next step may quote the submission's text at any length, and are truncated.
    """
    step = ENTRIES[code].next_step if next_step is None else _short(next_step)
    return Finding(code=code.value, message=_short(message), next_step=step, line=line, details=details)


def entry_of(found: Finding) -> Entry:
    """Return the entry of a finding. Raises ValueError for an unknown code."""
    return ENTRIES[Code(found.code)]


def has_trait(found: Finding, trait: Trait) -> bool:
    """Return whether the finding has `trait`; False for an unknown code."""
    return found.code in ENTRIES and trait in entry_of(found).traits


def _short(message: str) -> str:
    if len(message) <= _MOST_CHARACTERS:
        return message
    return f"{message[:_MOST_CHARACTERS]} [{len(message) - _MOST_CHARACTERS} more characters]"
