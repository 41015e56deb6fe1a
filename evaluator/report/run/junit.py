"""A run as JUnit XML: a suite for each problem, a case for each submission."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from xml.etree import ElementTree as Xml

from evaluator.records import Status
from evaluator.text import one_line

# Characters that XML 1.0 forbids, even escaped.
_FORBIDDEN = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MESSAGE = 300


class JUnitCase(NamedTuple):
    """One submission. `status` is None without a card; `body` is the feedback on a submission that is not correct.

    `properties` are the speedup with interval and circumstances. `status_text` tells apart
    missing cards and refused inputs.
    """

    problem: str
    name: str
    status: Status | None
    reason: str
    wall_s: float
    body: str = ""
    properties: Sequence[tuple[str, str]] = ()
    status_text: str = "missing"


def junit(cases: Iterable[JUnitCase], name: str) -> bytes:
    """Return the document.

    A wrong submission is a failure. A machine's fault and a refused input are errors. A submission
    without a verdict is skipped.
    """
    suites: dict[str, list[JUnitCase]] = defaultdict(list)
    for case in cases:
        suites[case.problem].append(case)
    everything = [case for suite_cases in suites.values() for case in suite_cases]
    top = Xml.Element("testsuites", {"name": _clean(name)} | _counts(everything))
    for problem, suite_cases in sorted(suites.items()):
        suite = Xml.SubElement(top, "testsuite", {"name": _clean(problem)} | _counts(suite_cases))
        for case in suite_cases:
            element = Xml.SubElement(
                suite, "testcase", classname=_clean(problem), name=_clean(case.name), time=f"{case.wall_s:.3f}"
            )
            if case.properties:
                properties = Xml.SubElement(element, "properties")
                for key, value in case.properties:
                    Xml.SubElement(properties, "property", name=key, value=_clean(value))
            tag = _tag(case)
            if tag is not None:
                message = _clean(one_line(case.reason or case.status_text, _MESSAGE))
                Xml.SubElement(element, tag, type=case.status_text, message=message).text = _clean(case.body) or None
    Xml.indent(top)
    document: bytes = Xml.tostring(top, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _tag(case: JUnitCase) -> str | None:
    match case.status:
        case Status.CORRECT:
            return None
        case None | Status.INFRA_ERROR:
            return "error"
        case Status.INCONCLUSIVE:
            return "skipped"
        case _:
            return "failure"


def _counts(cases: list[JUnitCase]) -> dict[str, str]:
    tags = [_tag(case) for case in cases]
    return {
        "tests": str(len(cases)),
        "failures": str(tags.count("failure")),
        "errors": str(tags.count("error")),
        "skipped": str(tags.count("skipped")),
        "time": f"{sum(case.wall_s for case in cases):.3f}",
    }


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
