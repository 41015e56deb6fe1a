"""Usual times of a grade's stages, from earlier grades on the same machine."""

import contextlib
from statistics import median

from evaluator.cache.eviction import CacheNamespace
from evaluator.cache.measurements import forget, look_up, measured_once
from evaluator.grading.stage_plan import stages_of
from evaluator.judge.setup.grade_terms import GradeTerms
from evaluator.paths import cache_folder
from evaluator.records import Record, Scorecard, Status

_VERSION = 1
_KEPT = 5
"""Number of grades with kept times. The median of five follows a changed machine soon."""


class StageTimes(Record, frozen=True):
    """Times of each stage in the latest grades, in seconds, newest first."""

    stages_s: dict[str, list[float]] = {}


def usual_s(terms: GradeTerms) -> dict[str, float]:
    """Return the median time of each stage in earlier grades with equal terms; an unknown stage is missing."""
    found = look_up(_key(terms), StageTimes)
    return {} if found is None else {name: median(times) for name, times in found.stages_s.items() if times}


def parts_built() -> frozenset[str]:
    """Return the names of all parts in the cache that a machine builds once: the emulator, allocators, headers."""
    return frozenset(
        entry.name
        for namespace in (CacheNamespace.PARTS, CacheNamespace.PREPARED)
        for entry in (cache_folder() / namespace).glob("*")
    )


def remember(terms: GradeTerms, card: Scorecard, parts_before: frozenset[str]) -> None:
    """Add the times of a correct card.

    A build from the cache says nothing about the next build. A grade that built parts once, compared with the
    `parts_before` the grade, says nothing about the next grade.
    """
    if card.status is not Status.CORRECT or parts_built() - parts_before:
        return
    units = [] if card.build is None else card.build.units
    without = {"build"} if any(unit.cached for unit in units) else set()
    before = look_up(_key(terms), StageTimes) or StageTimes()
    latest = {name: [taken] for name, taken in card.stages_s.items() if name not in without}
    stages = {
        name: [*latest.get(name, []), *before.stages_s.get(name, [])][:_KEPT]
        for name in dict.fromkeys([*before.stages_s, *latest])
    }
    with contextlib.suppress(OSError):  # An estimate is no reason to lose a grade.
        forget(_key(terms), StageTimes)
        measured_once(_key(terms), StageTimes, lambda: StageTimes(stages_s=stages))


def _key(terms: GradeTerms) -> list[object]:
    options, gpu = terms.options, terms.gpu
    same = [terms.problem.sha256, terms.size.value, terms.device.value, None if gpu is None else gpu.uuid]
    more = [*terms.further_sizes, bool(options.baselines), options.speedup_of is not None]
    return ["stage times", _VERSION, *same, *more, *stages_of(terms)]
