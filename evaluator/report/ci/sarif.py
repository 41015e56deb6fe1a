"""Verdicts as SARIF 2.1.0 (OASIS), which code hosts show beside the source. Pure.

A result exists for each verdict on a submission, and for each further finding. Failures of the machine and missing
cards are no results, but notifications of an unsuccessful invocation.
"""

import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from evaluator.findings import ENTRIES, Code
from evaluator.records import Finding, Status
from evaluator.report.ci.verdicts import Verdict
from evaluator.report.layout.text import one_line
from evaluator.version import __version__

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_PAGE = "https://github.com/warpgrade/warpgrade/blob/main/docs/findings.md"
_MESSAGE = 1000
_BRACKETS = re.compile(r"[\\\[\]]")


def sarif(verdicts: Iterable[Verdict]) -> dict[str, Any]:
    """Return the document."""
    results, notifications = [], []
    for verdict in verdicts:
        if verdict.status is None or verdict.status is Status.INFRA_ERROR:
            said = f"{verdict.label}: {verdict.status_text} {verdict.message}".strip()
            notifications.append({"level": "error", "message": _message(said)})
            continue
        if verdict.reason is not None:
            results.append(_result(verdict, verdict.reason, _level(verdict.status)))
        results += [_result(verdict, finding, "note") for finding in verdict.findings]
    used = sorted({each["ruleId"] for each in results if "ruleId" in each})
    driver = {
        "name": "Warpgrade",
        "version": __version__,
        "informationUri": "https://github.com/warpgrade/warpgrade",
        "rules": [_rule(Code(code)) for code in used],
    }
    invocation = {"executionSuccessful": not notifications, "toolExecutionNotifications": notifications}
    run = {"tool": {"driver": driver}, "invocations": [invocation], "results": results}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _level(status: Status) -> str:
    return "warning" if status is Status.INCONCLUSIVE else "error"


def _rule(code: Code) -> dict[str, Any]:
    entry = ENTRIES[code]
    return {
        "id": code.value,
        "name": code.name.title().replace("_", ""),
        "shortDescription": {"text": entry.title},
        "fullDescription": {"text": entry.meaning},
        "help": {"text": entry.next_step},
        "helpUri": f"{_PAGE}#{code.value.lower()}",
    }


def _result(verdict: Verdict, finding: Finding, level: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "level": level,
        "message": _message(f"{verdict.label}: {verdict.status_text}: {finding.message} {finding.next_step}"),
    }
    if finding.code in set(Code):
        found["ruleId"] = finding.code
    if (location := verdict.location_of(finding)) is not None:
        physical: dict[str, Any] = {"artifactLocation": {"uri": quote(location.path)}}
        if location.line is not None and location.line >= 1:
            physical["region"] = {"startLine": location.line}
        found["locations"] = [{"physicalLocation": physical}]
    return found


def _message(text: str) -> dict[str, str]:
    """Return a plain-text message without embedded links (SARIF 3.11.6) and placeholders (3.11.5)."""
    escaped = _BRACKETS.sub(lambda found: f"\\{found[0]}", one_line(text, _MESSAGE))
    return {"text": escaped.replace("{", "{{").replace("}", "}}")}
