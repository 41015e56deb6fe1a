"""Results of a run: every planned submission, with the row of its card or as missing, and every refused input."""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from evaluator.batch.runs.index import CardSummary, Index, row_of
from evaluator.batch.runs.manifest import RunManifest
from evaluator.batch.runs.refusals import read_refusals
from evaluator.batch.runs.run_folder import RunFolder
from evaluator.batch.runs.tasks import Planned, Refused
from evaluator.catalog import natural
from evaluator.errors import CardError, UsageError
from evaluator.files.card_files import card_of, read_bytes, read_card
from evaluator.findings import ENTRIES, Code
from evaluator.records import BenchmarkRule, DeviceKind, GradeMode, Scorecard, Status
from evaluator.report.run.run_comparison import Comparison, compare
from evaluator.report.run.several_runs import NamedRun
from evaluator.report.run.summary import CaseSample, Device, RunSample, Section, sections
from evaluator.signatures.signing import Seen, State, Trust
from evaluator.text import one_line

_CONTRADICTS = "it counts as missing; `warpgrade check-card` says all of it, and the same batch grades it again"
_NOT_TAKEN = "it counts as missing"
_LONGEST_NAME = 120
_OF_ROWS = tuple(name for name in RunSample._fields if name in CardSummary._fields)
_STATUSES = {status.value: status for status in Status}  # many times faster than Status(…)


class RunEntry(NamedTuple):
    """One submission of a run. `cards` is the folder with all cards of the run.

    `planned` is None if the plan lost the line, `row` is None without a valid card. A refused input has neither, and
    `refused` instead.
    """

    cards: Path
    planned: Planned | None
    row: CardSummary | None
    refused: Refused | None = None

    @property
    def sample(self) -> RunSample:
        """Sample for the statistics of a run."""
        row = self.row
        if row is not None:
            fields = {name: getattr(row, name) for name in _OF_ROWS}
            fields["device"] = device_of(row.device, row.device_name, row.mode)
            fields["status"] = _STATUSES[row.status]
            fields["built"], fields["host_bound"] = bool(row.built), bool(row.host_bound)
            fields["benchmark_correct"] = None if row.benchmark_correct is None else bool(row.benchmark_correct)
            fields["benchmark_rule"] = BenchmarkRule(row.benchmark_rule)
            fields["cases"] = msgspec.json.decode(row.cases, type=tuple[CaseSample, ...]) if row.cases else ()
            return RunSample(**fields)
        if self.refused is not None:
            return RunSample(self.refused.problem, self.refused.level, self.refused.name, None, None, is_refused=True)
        assert self.planned is not None  # noqa: S101 - for the type checker: an entry has one of them
        return RunSample(self.planned.problem, self.planned.level, self.planned.name, None, None)

    @property
    def status_text(self) -> str:
        """The status, `refused` or `missing`."""
        return self.sample.status_text

    @property
    def origin(self) -> str | None:
        """Where the submission was read; None if unknown."""
        source = self.planned or self.refused
        return None if source is None else source.origin

    @property
    def reason_text(self) -> str:
        """Code and title of the deciding finding, or the reason of a refusal or of a missing card; may be empty."""
        if self.refused is not None:
            return self.refused.reason
        if self.row is None:
            return "no scorecard; the same `warpgrade batch` grades the submission"
        code = self.row.reason
        if code is None:
            return ""
        return f"{code} {ENTRIES[Code(code)].title}" if code in set(Code) else code

    @property
    def problem_sha256(self) -> str:
        """Hash of the problem."""
        source = self.row or self.planned
        return "" if source is None else source.problem_sha256

    def read_card(self) -> Scorecard | None:
        """Read the full card; None if the card is missing or unreadable."""
        if self.row is None:
            return None
        try:
            return read_card(self.cards / self.row.card, self.cards)
        except CardError:
            return None


class Results(NamedTuple):
    """All results of a run.

    `broken` lists unreadable and rejected cards. `signatures` maps the path of each accepted card to its signature.
    """

    folder: Path
    manifest: RunManifest
    entries: list[RunEntry]
    broken: list[CardError]
    signatures: dict[str, Seen] = {}

    @property
    def run_device(self) -> Device:
        """Device of a run without any card."""
        return device_of(self.manifest.terms.device.value, "", self.manifest.terms.mode.value)

    @property
    def sections(self) -> list[Section]:
        """Statistics of each device."""
        return sections(self.samples, self.run_device, self.manifest.level_sizes)

    @property
    def samples(self) -> list[RunSample]:
        """Samples of all entries."""
        return [entry.sample for entry in self.entries]


@cache
def device_of(kind: str, name: str, mode: str) -> Device:
    """Return the device of a summary. The emulator has no clock, and mode `check` uses none."""
    timed = DeviceKind(kind) is not DeviceKind.EMULATED and GradeMode(mode) is GradeMode.FULL
    return Device(kind, name, timed=timed)


def read_run(path: Path, trust: Trust | None = None) -> Results:
    """Read the run in the folder `path`. A card with another content than the plan's line counts as missing.

    An inconsistent card and a card changed after its signature also count as missing, and are listed in `broken`. If
    `trust` names keys, so do cards without a signature by one of the keys; then every card is read and no index is
    used.

    Raises:
        CardError: `path` is no run folder, or a list in the folder cannot be read.
    """
    folder = RunFolder(path)
    manifest = folder.read_manifest()
    planned = folder.read_plan()
    refusals = read_refusals(folder)
    trust = trust or Trust()
    with Index(folder, believed=not trust.is_asked) as index:
        rows, broken = index.rows, index.broken
    entries, cards = [], folder.cards
    signatures: dict[str, Seen] = {}
    for card in sorted({*planned, *rows}, key=natural):
        plan, row = planned.get(card), rows.get(card)
        if plan is not None and row is not None and not row.is_of(plan):
            row = None
        if row is not None:
            signature, error = _signature(cards / card, cards, row, trust)
            if error is None:
                signatures[card] = signature
            else:
                broken.append(error)
                plan, row = plan or _planned_of(row), None
        entries.append(RunEntry(cards, plan, row))
    entries += _refused_entries(cards, entries, refusals)
    return Results(path, manifest, entries, broken, signatures)


def _refused_entries(cards: Path, entries: Sequence[RunEntry], refusals: Sequence[Refused]) -> Iterator[RunEntry]:
    """Yield the entries of refused inputs, each with an own name.

    A file counts once, as a submission of the plan: an interrupted session may have left an earlier refusal.
    """
    accepted = {entry.planned.origin for entry in entries if entry.planned is not None and entry.planned.stamp}
    used_names = {(entry.sample.problem, entry.sample.name) for entry in entries}
    numbers: defaultdict[tuple[str, str], Iterator[int]] = defaultdict(lambda: itertools.count(1))
    for refused in refusals:
        if refused.origin in accepted:
            continue
        unique, unused = refused, numbers[refused.problem, refused.origin]
        while not unique.name or (unique.problem, unique.name) in used_names:
            number = next(unused)  # tried once for all refusals of a place: a stream may have thousands of one line
            unique = replace(refused, name=refused.origin if number == 1 else f"{refused.origin} ({number})")
        used_names.add((unique.problem, unique.name))
        yield RunEntry(cards, None, None, unique)


def read_runs(paths: Sequence[Path], trust: Trust | None = None) -> Results:
    """Read several runs as one: the shards of a batch.

    Raises:
        CardError: one of the paths is no run folder.
        UsageError: devices or rules of the runs differ, or two runs contain the same submission.
    """
    return merged(read_each(paths, trust))


def read_each(paths: Sequence[Path], trust: Trust | None = None) -> list[Results]:
    """Read several runs of one device and of the same rules.

    Raises:
        CardError: one of the paths is no run folder.
        UsageError: devices or rules of the runs differ, or a path is there twice.
    """
    if len({path.resolve() for path in paths}) < len(paths):
        raise UsageError("a run is named twice", hint="name each run once")
    runs = [read_run(path, trust) for path in paths]
    kinds = {run.run_device.kind for run in runs}
    if len(kinds) > 1:
        raise UsageError(f"the runs are from different devices: {' and '.join(sorted(kinds))}")
    _refuse_other_rules(runs)
    return runs


def are_shards(runs: Sequence[Results]) -> bool:
    """Return whether all runs graded different submissions from one place: the shards of a batch."""
    return len({run.manifest.submissions for run in runs}) == 1 and _in_two_of(runs) is None


def _in_two_of(runs: Sequence[Results]) -> RunSample | None:
    used_names: set[tuple[str, str]] = set()
    for run in runs:
        samples = {(sample.problem, sample.name): sample for sample in run.samples if not sample.is_refused}
        for key, sample in samples.items():
            if key in used_names:
                return sample
        used_names |= samples.keys()
    return None


def merged(runs: Sequence[Results]) -> Results:
    """Return several runs as one. Raises UsageError for a submission in two runs."""
    if len(runs) == 1:
        return runs[0]
    if (same := _in_two_of(runs)) is not None:
        hint = "`warpgrade report` puts several runs into one table, `warpgrade compare` compares two"
        raise UsageError(f"two runs contain {same.problem}/{same.name}", hint=hint)
    level_sizes = {level: size for run in runs for level, size in run.manifest.level_sizes.items()}
    return runs[0]._replace(
        manifest=replace(runs[0].manifest, level_sizes=level_sizes),
        entries=[entry for run in runs for entry in run.entries],
        broken=[error for run in runs for error in run.broken],
        signatures={f"{run.folder}/{card}": signature for run in runs for card, signature in run.signatures.items()},
    )


def compare_results(before: Results, after: Results) -> Comparison:
    """Compare two runs. Raises UsageError if devices, or the rules of the grades, differ."""
    runs = (before, after)
    _refuse_other_devices(runs)
    _refuse_other_rules(runs)
    return compare(*([sample for sample in run.samples if not sample.is_refused] for run in runs))


def named_runs(runs: Sequence[Results]) -> list[NamedRun]:
    """Return the statistics of each run and device, under the name of the run's folder; equal names have the path.

    Raises:
        UsageError: the runs are from different devices.
    """
    _refuse_other_devices(runs)
    names = [one_line(run.folder.resolve().name, _LONGEST_NAME) for run in runs]
    if len(set(names)) < len(names):
        names = [one_line(str(run.folder), _LONGEST_NAME) for run in runs]
    statistics = []
    for name, run in zip(names, runs, strict=True):
        sections = run.sections
        for section in sections:
            device = section.device
            speedups = [
                sample.speedup
                for sample in run.samples
                if sample.device == device and sample.correct and sample.speedup is not None
            ]
            statistics.append(NamedRun(name if len(sections) == 1 else f"{name} ({device.name})", section, speedups))
    return statistics


def _refuse_other_devices(runs: Sequence[Results]) -> None:
    devices = [{(sample.device.kind, sample.device.name) for sample in run.samples if sample.device} for run in runs]
    graded = [names for names in devices if names]
    if other := next((names for names in graded if names != graded[0]), None):
        first, second = (", ".join(f"{kind} ({name})" for kind, name in sorted(names)) for names in (graded[0], other))
        raise UsageError(f"the runs are from different devices: {first}; {second}")


def _refuse_other_rules(runs: Sequence[Results]) -> None:
    for name in ("weights", "values", "l2", "mode"):
        rules = {getattr(run.manifest.terms, name) or "the problem's setting" for run in runs}
        if len(rules) > 1:
            hint = f"report each run alone, or grade one again with the other's --{name} and --fresh"
            raise UsageError(f"the runs used different --{name}: {' and '.join(sorted(rules))}", hint=hint)


def _signature(path: Path, cards: Path, row: CardSummary, trust: Trust) -> tuple[Seen, CardError | None]:
    """Return the state of a card's signature, and the reason for a rejection of the card, if any."""
    if row.contradiction is not None:
        message = f"{path} contradicts itself: {row.contradiction}"
        return Seen(State.UNSIGNED, None), CardError(message, hint=_CONTRADICTS)
    if not row.signed and not trust.is_asked:
        return Seen(State.UNSIGNED, None), None
    try:
        content = read_bytes(path, cards)
        looked = trust.look(content)
        refused = None if looked.refused is None else CardError(f"{path} {looked.refused}", hint=_NOT_TAKEN)
        if refused is None and row_of(card_of(content, path), row.card, row.size_bytes, row.mtime_ns) != row:
            refused = CardError(f"{path} differs from the card in the run's index", hint=_NOT_TAKEN)
    except CardError as error:
        return Seen(State.UNSIGNED, None), error
    return looked.seen, refused


def _planned_of(row: CardSummary) -> Planned:
    """Return the plan's line for a rejected card, from the card's row."""
    return Planned(
        card=row.card,
        problem=row.problem,
        level=row.level,
        name=row.name,
        origin="",
        problem_sha256=row.problem_sha256,
        submission_sha256=row.submission_sha256,
    )
