"""Results of a run for other programs: rows in CSV, JSON and Parquet, JUnit XML, KernelBench's files.

The format of `eval_results.json` comes from KernelBench's scripts/eval_from_generations.py: `{"<problem number>":
[{sample_id, compiled, correctness, metadata, runtime, runtime_stats}]}`, with times in ms and -1 for a missing time.
The format has two truth values only, so the metadata contain Warpgrade's verdict.

The analysis divides by reference times from KernelBench's own files (results/timing/*/*.json: `{"level1":
{"19_ReLU.py": {mean, std, …}}}`), measured on another GPU at full size. The export therefore includes the run's own
reference times. A problem of the run without a reference time has -1: the analysis drops problems that the file lacks
from fast_p, denominator included, and ignores the times of samples that are not correct.

A time without a quoted speedup is exported as -1 for both submission and reference. The analysis reads their ratio as a
speedup of 1: neither slower nor faster.
"""

import csv
import io
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree as Xml

import msgspec

from evaluator.errors import UsageError
from evaluator.files.card_files import write_whole
from evaluator.records import CallKind, Scorecard, Status
from evaluator.report.card.measurement import measurement
from evaluator.report.run.summary import RunSample
from evaluator.text import one_line

SUFFIXES = (".csv", ".json", ".parquet")
_FORMULA = tuple("=+-@\uff1d\uff0b\uff0d\uff20")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufeff]")
"""Control characters, without white space, and the byte-order mark."""


COLUMNS = (
    *("problem", "level", "name", "status", "reason", "built", "speedup", "speedup_low", "speedup_high"),
    *("device", "device_name", "wall_s", "graded_at", "problem_sha256", "submission_sha256", "origin", "mode"),
    *("reference_calls", "submission_calls", "l2", "host_bound", "refusal", "benchmark_correct", "benchmark_rule"),
)
"""Columns of a row for each submission. Only correct submissions have speedups.

Rows of status `missing` or `refused` have neither device nor times. Status `refused` has a `refusal`, the reason, and
maybe an unknown `problem` without a `level`.

`reference_calls` and `submission_calls` are the kinds of calls behind the speedup: windows or single calls. `l2` is the
state of the inputs in the L2 cache. `host_bound`: calls of a side wait for the host rather than for the GPU.
`benchmark_correct` and `benchmark_rule` are as on the card.
"""
_NUMBERS = ("speedup", "speedup_low", "speedup_high", "wall_s")
_FLAGS = ("built", "host_bound", "benchmark_correct")
Row = dict[str, Any]
"""Values by column."""


def no_formula(text: str) -> str:
    r"""Return text without control characters that a spreadsheet does not parse as a formula.

    A carriage return becomes a line feed: Python's csv quotes no carriage return, which begins a new row.

    >>> no_formula("=1+1"), no_formula("relu"), no_formula(" -x"), no_formula("\x00=1"), no_formula("a\r=1")
    ("'=1+1", 'relu', "' -x", "'=1", 'a\n=1')
    """
    text = _CONTROL.sub("", text).replace("\r", "\n")
    return f"'{text}" if text.lstrip().startswith(_FORMULA) or text[:1] in {"\t", "\n"} else text


def check_suffix(path: Path) -> None:
    """Raise UsageError for a file of another format."""
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"{path} is not a file of rows", hint=f"end the name with {' or '.join(SUFFIXES)}")


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Write rows to a file, whose suffix selects the format. The file is replaced as a whole.

    Raises:
        OSError: the file cannot be written.
        UsageError: the format is unknown, or its package is missing.
    """
    check_suffix(path)
    match path.suffix.lower():
        case ".csv":
            content = _csv(rows)
        case ".json":
            content = msgspec.json.format(msgspec.json.encode(list(rows)), indent=2) + b"\n"
        case _:
            content = _parquet(rows)
    write_whole(path, content)


def _csv(rows: Iterable[Row]) -> bytes:
    buffer = io.StringIO()
    table = csv.writer(buffer, lineterminator="\n")
    table.writerow(COLUMNS)
    for row in rows:
        table.writerow([no_formula(cell) if isinstance(cell, str) else cell for cell in row.values()])
    return buffer.getvalue().encode("utf-8", "backslashreplace")


def _parquet(rows: Iterable[Row]) -> bytes:
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError as error:
        raise UsageError("Parquet needs the package pyarrow", hint="pip install 'warpgrade[parquet]'") from error
    kinds = {"level": arrow.int64()} | dict.fromkeys(_FLAGS, arrow.bool_()) | dict.fromkeys(_NUMBERS, arrow.float64())
    layout = arrow.schema([(name, kinds.get(name, arrow.string())) for name in COLUMNS])
    buffer = io.BytesIO()
    parquet.write_table(arrow.Table.from_pylist(list(rows), schema=layout), buffer)
    return buffer.getvalue()


# Characters that XML 1.0 forbids, even escaped.
_FORBIDDEN = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MESSAGE = 300


class ExplainedSample(NamedTuple):
    """One submission with the reason of its verdict. `body` is the feedback, empty on a correct submission."""

    sample: RunSample
    reason: str = ""
    body: str = ""
    wall_s: float = 0.0


def junit(cases: Iterable[ExplainedSample], name: str) -> bytes:
    """Return the document.

    A wrong submission is a failure. A machine's fault and a refused input are errors. A submission
    without a verdict is skipped.
    """
    suites: dict[str, list[ExplainedSample]] = defaultdict(list)
    for case in cases:
        suites[case.sample.problem or case.sample.status_text].append(case)  # a refused input may have no problem
    everything = [case for suite_cases in suites.values() for case in suite_cases]
    top = Xml.Element("testsuites", {"name": _clean(name)} | _counts(everything))
    for problem, suite_cases in sorted(suites.items()):
        suite = Xml.SubElement(top, "testsuite", {"name": _clean(problem)} | _counts(suite_cases))
        for case in suite_cases:
            status, time = case.sample.status_text, f"{case.wall_s:.3f}"
            element = Xml.SubElement(
                suite, "testcase", classname=_clean(problem), name=_clean(case.sample.name), time=time
            )
            if case.sample.submission_calls is not None:
                _add_properties(Xml.SubElement(element, "properties"), case.sample)
            tag = _tag(case)
            if tag is not None:
                message = _clean(one_line(case.reason or status, _MESSAGE))
                Xml.SubElement(element, tag, type=status, message=message).text = _clean(case.body) or None
    Xml.indent(top)
    document: bytes = Xml.tostring(top, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _add_properties(parent: Xml.Element, sample: RunSample) -> None:
    for name in ("speedup", "speedup_low", "speedup_high", "reference_calls", "submission_calls", "l2", "host_bound"):
        value = getattr(sample, name)
        if value is not None:
            text = f"{value:.6g}" if isinstance(value, float) else str(value)
            text = text.lower() if isinstance(value, bool) else text
            Xml.SubElement(parent, "property", name=name, value=_clean(text))


def _tag(case: ExplainedSample) -> str | None:
    match case.sample.status:
        case Status.CORRECT:
            return None
        case None | Status.INFRA_ERROR:
            return "error"
        case Status.INCONCLUSIVE:
            return "skipped"
        case _:
            return "failure"


def _counts(cases: list[ExplainedSample]) -> dict[str, str]:
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


_PROBLEM = re.compile(r"level(?P<level>[0-9]{1,6})/(?P<number>[0-9]{1,9})_.*")
_SAMPLE = re.compile(r"(?:.*sample_)?([0-9]{1,9})")
_NO_TIME = -1.0
_UNTIMED = {"mean": _NO_TIME}
_WORD = 300


Document = dict[str, Any]


class GradedSample(NamedTuple):
    """One submission of a run; `card` is None without a card."""

    problem: str
    name: str
    card: Scorecard | None


class Documents(NamedTuple):
    """Exported documents: `results` by level, and `baseline` with the reference's times, None without any time.

    `left_out` counts submissions to problems that are not KernelBench's, `unquoted` the timed correct ones without a
    speedup.
    """

    results: dict[int, dict[str, list[Document]]]
    baseline: dict[str, dict[str, Document]] | None
    left_out: int
    unquoted: int


class _SampleEntry(NamedTuple):
    """Part of a submission's card kept in memory: a hundred thousand whole cards would not fit."""

    entry: Document
    reference: Document
    correct: bool


def documents(submissions: Iterable[GradedSample]) -> Documents:
    """Return the documents of all levels and of the reference times.

    Raises:
        UsageError: no problem is one of KernelBench's.
    """
    levels: dict[int, dict[int, dict[str, _SampleEntry]]] = defaultdict(lambda: defaultdict(dict))
    files: dict[tuple[int, int], str] = {}
    left_out: dict[str, int] = {}
    unquoted = 0
    for graded in submissions:
        match = _PROBLEM.fullmatch(graded.problem)
        if match is None:
            left_out[graded.problem] = left_out.get(graded.problem, 0) + 1
            continue
        level, number = int(match["level"]), int(match["number"])
        sample = levels[level][number][graded.name] = _SampleEntry(
            _entry(graded.card), _reference(graded.card), _is_correct(graded.card)
        )
        files[level, number] = f"{graded.problem.partition('/')[2]}.py"
        unquoted += (
            sample.correct and graded.card is not None and graded.card.timing is not None and not sample.reference
        )
    if left_out and not levels:
        hint = "grade with --problems pointing to KernelBench's files"
        raise UsageError(f"{next(iter(left_out))} is not a KernelBench problem (level1/19_ReLU)", hint=hint)
    results: dict[int, dict[str, list[Document]]] = {}
    baseline: dict[str, dict[str, Document]] = {}
    for level, problems in sorted(levels.items()):
        results[level], times = {}, baseline.setdefault(f"level{level}", {})
        for number, by_name in sorted(problems.items()):
            samples = [(sample_id, by_name[name]) for name, sample_id in _numbered(by_name)]
            results[level][str(number)] = [{"sample_id": sample_id, **sample.entry} for sample_id, sample in samples]
            times[files[level, number]] = _reference_times([sample for _, sample in samples])
    timed = any(entry is not _UNTIMED for times in baseline.values() for entry in times.values())
    return Documents(results, baseline if timed else None, sum(left_out.values()), unquoted)


def _reference_times(samples: list[_SampleEntry]) -> Document:
    """Return the reference's times of a problem. The analysis uses the first sample, so its reference times come first.

    If the first sample is not correct, the analysis never divides by the times, and any sample's reference will do.
    """
    if samples[0].correct:
        return samples[0].reference or _UNTIMED
    return next((sample.reference for sample in samples if sample.reference), _UNTIMED)


def _numbered(names: Iterable[str]) -> list[tuple[str, int]]:
    """Assign a unique number to each sample: the number in its name if unique, otherwise the next free one."""
    names_by_number: dict[int, str] = {}
    for name in sorted(names):
        match = _SAMPLE.fullmatch(name)
        if match is not None:
            names_by_number.setdefault(int(match[1]), name)
    free = (number for number in range(10**9) if number not in names_by_number)
    numbers = {name: number for number, name in names_by_number.items()}
    numbers |= {name: next(free) for name in sorted(names) if name not in numbers}
    return sorted(numbers.items(), key=lambda item: item[1])


def _entry(card: Scorecard | None) -> Document:
    correct = _is_correct(card)
    stats: Document = {}
    if card is not None and correct and card.timing is not None and card.timing.speedup is not None:
        side = card.timing.submission
        # KernelBench has no intervals, so unwatched time of single calls counts as the submission's.
        unwatched_ms = side.unwatched_ms if side.kind is CallKind.SINGLE else 0.0
        stats = _stats(card, [sample_ms + unwatched_ms for sample_ms in side.samples_ms])
    return {
        "compiled": correct or (card is not None and card.build is not None and card.build.ok),
        "correctness": correct,
        "metadata": {} if card is None else _metadata(card),
        "runtime": stats.get("mean", _NO_TIME),
        "runtime_stats": stats,
    }


def _is_correct(card: Scorecard | None) -> bool:
    return card is not None and card.status is Status.CORRECT


def _reference(card: Scorecard | None) -> Document:
    """Return the statistics of the reference's calls, before and after; empty without a quoted speedup."""
    if card is None or card.timing is None or card.timing.speedup is None:
        return {}
    return _stats(card, [*card.timing.reference_before.samples_ms, *card.timing.reference_after.samples_ms])


def _stats(card: Scorecard, times_ms: list[float]) -> Document:
    return {
        "mean": statistics.fmean(times_ms),
        "std": statistics.pstdev(times_ms),
        # A call below the clock's resolution has no minimum.
        **({"min": min(times_ms)} if min(times_ms) > 0 else {}),
        "max": max(times_ms),
        "num_trials": len(times_ms),
        "hardware": card.device.name,
        "device": card.device.kind.value,
    }


_WHY = {
    Status.WRONG_RESULT: "correctness_issue",
    Status.RUNTIME_ERROR: "runtime_error",
    Status.BUILD_ERROR: "compilation_error",
}


def _metadata(card: Scorecard) -> Document:
    passed = sum(check.ok for check in card.checks)
    metadata: Document = {
        "hardware": card.device.name,
        "device": card.device.kind.value,
        "correctness_trials": f"({passed} / {len(card.checks)})",
        "warpgrade_status": card.status.value,
    }
    if card.reason is not None:
        key = _WHY.get(card.status, "other_error")
        metadata |= {key: card.reason.message[:_WORD], f"{key}_name": card.reason.code}
    if card.timing is not None and card.timing.speedup is not None:
        metadata["warpgrade_speedup"] = card.timing.speedup
        metadata["warpgrade_measured"] = measurement(card)
    return metadata
