"""Stages of a grade in advance, and what earlier grades say about their times."""

import errno

import pytest
from msgspec.structs import replace

from evaluator.catalog import find_problem
from evaluator.devices.gpu import Gpu
from evaluator.grade_options import GradeOptions
from evaluator.grading import usual_times
from evaluator.grading.stage_plan import stages_of
from evaluator.grading.usual_times import parts_built, remember, usual_s
from evaluator.judge.setup.grade_terms import GradeTerms
from evaluator.records import DeviceKind, GradeMode, ProfilerKind, SizeName, Status
from tests import cards

GPU = Gpu(0, "GPU-1", "NVIDIA H100", (9, 0), 80 << 30, "570", ())


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path / "cache"))


def terms(device=DeviceKind.CPU, **options):
    gpu = GPU if device is DeviceKind.CUDA else None
    return GradeTerms(find_problem("relu"), GradeOptions(device, **options), gpu, 2)


def taken(build_s, *, cached=False, **changes):
    unit = cards.build_unit(ok=True, cached=cached)
    build = replace(cards.card().build, units=[unit])
    return cards.card(stages_s={"read": 1.0, "build": build_s, "check": 2.0}, build=build, **changes)


@pytest.mark.parametrize(
    ("device", "options", "stages"),
    [
        (DeviceKind.EMULATED, {}, "read prepare lint build check"),
        (DeviceKind.CPU, {}, "read prepare lint build check time"),
        (DeviceKind.CPU, {"mode": GradeMode.CHECK, "require_own_kernel": 0.5}, "read prepare lint build check"),
        (DeviceKind.CPU, {"profile": ProfilerKind.TORCH}, "read prepare lint build check time profile"),
        (DeviceKind.CUDA, {}, "read prepare lint build device check time roofline"),
        (DeviceKind.CUDA, {"mode": GradeMode.CHECK}, "read prepare lint build device check"),
        (DeviceKind.CUDA, {"require_own_kernel": 0.5}, "read prepare lint build device check time roofline profile"),
    ],
)
def test_the_stages_of_a_grade_are_known_in_advance(device, options, stages):
    assert " ".join(stages_of(terms(device, **options))) == stages


def test_no_earlier_grade_no_times():
    assert usual_s(terms()) == {}


def test_the_median_of_the_latest_grades_counts():
    for build_s in (500.0, 10.0, 30.0, 20.0, 21.0, 22.0):
        remember(terms(), taken(build_s), parts_built())
    assert usual_s(terms()) == {"read": 1.0, "build": 21.0, "check": 2.0}


def test_a_build_from_the_cache_is_no_build():
    remember(terms(), taken(0.1, cached=True), parts_built())
    assert usual_s(terms()) == {"read": 1.0, "check": 2.0}
    remember(terms(), taken(30.0), parts_built())
    remember(terms(), taken(0.1, cached=True), parts_built())
    assert usual_s(terms())["build"] == 30.0


def test_a_grade_that_ended_early_says_nothing():
    remember(terms(), taken(1.0, status=Status.TIMEOUT), parts_built())
    assert usual_s(terms()) == {}


@pytest.mark.parametrize("namespace", ["parts", "prepared"])
def test_a_grade_that_built_parts_once_says_nothing(namespace, tmp_path):
    before = parts_built()
    (tmp_path / "cache" / namespace / "a part").mkdir(parents=True)
    remember(terms(), taken(126.0), before)
    assert usual_s(terms()) == {}
    remember(terms(), taken(20.0), parts_built())
    assert usual_s(terms())["build"] == 20.0


@pytest.mark.parametrize(
    "other",
    [
        terms(DeviceKind.EMULATED),
        terms(size=SizeName.FULL),
        terms(mode=GradeMode.CHECK),
        terms(profile=ProfilerKind.TORCH),
        terms(DeviceKind.CUDA),
    ],
)
def test_grades_of_other_terms_say_nothing(other):
    remember(terms(), taken(1.0), parts_built())
    assert usual_s(other) == {}


def test_a_full_disk_loses_no_grade(monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(usual_times, "forget", full)
    remember(terms(), taken(1.0), parts_built())
    assert usual_s(terms()) == {}
