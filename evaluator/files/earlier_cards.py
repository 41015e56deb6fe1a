"""Cards of earlier schema versions in the current form. Pure.

Version 1 covers every form before version 2. Later forms of version 1 only added optional fields, with these
exceptions: cards before the emulated device have no schedules of checks, and cards of the first windows have
`spot_quoted`, for quoted spot checks. Cards of two sizes before `cases` have `further_sizes`: the checks tell of them
too. In version 2, windows have no `raised_ms`, and other times (`Windows`). Up to version 3, the second opinion is
KernelBench's. Version 5 adds names of rules alone.
"""

from collections.abc import Iterator
from typing import Any, TypeGuard

from evaluator.errors import CardError
from evaluator.records import SCHEMA_VERSION

FIRST_VERSION = 1
INTERVALS_REMARK = "intervals followed earlier rules and were not recomputed"
"""Remark about a valid card of an earlier version."""
_SIDES = ("reference_before", "submission", "reference_after")


def is_readable(version: object) -> bool:
    """Return whether cards of a schema version can be read.

    >>> is_readable(1), is_readable(SCHEMA_VERSION), is_readable(SCHEMA_VERSION + 1), is_readable(True)
    (True, True, False, False)
    """
    return isinstance(version, int) and not isinstance(version, bool) and FIRST_VERSION <= version <= SCHEMA_VERSION


def why_unreadable(version: object) -> str:
    """Return the remedy for a card of a version refused by `is_readable`."""
    newer = isinstance(version, int) and version > SCHEMA_VERSION
    remedy = "; a newer Warpgrade wrote it, so install that version" if newer else ""
    return f"this Warpgrade reads versions {FIRST_VERSION} to {SCHEMA_VERSION}{remedy}"


def has_further_sizes(content: bytes) -> bool:
    """Return whether a card of the current version may be one of two sizes before `cases`."""
    return b'"further_sizes"' in content


def in_current_form(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document of a readable card with the current fields; `schema_version` is unchanged.

    The document may hold anything: parts of unexpected types stay, and the decoder refuses the parts.

    Raises:
        CardError: the card quotes times without a current field.
    """
    made = dict(document)
    if _is_object(problem := made.get("problem")) and "further_sizes" in problem:
        made["problem"] = {name: each for name, each in problem.items() if name != "further_sizes"}
    if document.get("schema_version") == SCHEMA_VERSION:
        return made
    made = _renamed(made, "kernelbench_correct", "benchmark_correct")
    if isinstance(checks := made.get("checks"), list):
        made["checks"] = [_check(each) if _is_object(each) else each for each in checks]
    if _is_object(timing := made.get("timing")):
        made["timing"] = timing | {name: _side(timing[name]) for name in _SIDES if name in timing}
    if isinstance(baselines := made.get("baselines"), list):
        made["baselines"] = list(_baselines(baselines))
    return made


def _check(check: dict[str, Any]) -> dict[str, Any]:
    return {"schedule": None, "launches": None} | _renamed(check, "kernelbench_ok", "benchmark_ok")


def _renamed(document: dict[str, Any], before: str, after: str) -> dict[str, Any]:
    return {after if name == before else name: value for name, value in document.items()}


def _baselines(baselines: list[Any]) -> Iterator[Any]:
    for each in baselines:
        yield each | {"samples": _side(each["samples"])} if _is_object(each) and "samples" in each else each


def _side(side: Any) -> Any:
    """Return the samples of a side without `spot_quoted`; the successor is `shared_work`."""
    if not _is_object(side) or not _is_object(windows := side.get("windows")) or "spot_quoted" not in windows:
        return side
    if windows["spot_quoted"] is not False:
        hint = "grade the submission again: single calls are quoted now where the calls of windows share work"
        raise CardError("the card quotes times of spot checks, a rule that was withdrawn", hint=hint)
    return side | {"windows": {name: each for name, each in windows.items() if name != "spot_quoted"}}


def _is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)
