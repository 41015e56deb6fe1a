"""Clocks during the sides of a grade, and other processes, with a GPU whose states are given."""

import itertools
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from evaluator.devices.gpu import ClockLook
from evaluator.findings import Code
from evaluator.judge.clock import gpu_monitor
from evaluator.judge.clock.gpu_monitor import NO_WATCH, ClockWatch, GpuMonitor, clock_findings
from evaluator.records import Clocks
from tests import cards
from tests.unit.devices.test_gpu import QUIET

COOL = ClockLook(sm_mhz=1980, temperature_c=40, throttled=())
CAP, HEAT = "power cap", "thermal slowdown"


def test_a_watch_keeps_what_it_sees_and_leaves_out_looks_without_an_answer():
    looks = iter([COOL, None, COOL._replace(sm_mhz=1755, throttled=(CAP,)), COOL._replace(throttled=(CAP, HEAT))])
    watch = ClockWatch(lambda: next(looks), start_c=39, waited_s=0.5)
    for _ in range(4):
        watch.look()
    seen = Clocks(sm_mhz=[1980, 1755, 1980], throttled={CAP: 2, HEAT: 1}, start_c=39, waited_s=0.5)
    assert watch.clocks() == seen


def test_single_calls_are_looked_at_now_and_then():
    asked = []
    watch = ClockWatch(lambda: asked.append(1))
    for call in range(1, 21):
        watch.look_at(call)
    assert len(asked) == 4
    assert watch.clocks() is None
    NO_WATCH.look()
    assert NO_WATCH.clocks() is None


def timing(before, submission, after):
    def with_clocks(side, clocks):
        return replace(side, clocks=clocks)

    given = cards.timing()
    return replace(
        given,
        reference_before=with_clocks(given.reference_before, before),
        submission=with_clocks(given.submission, submission),
        reference_after=with_clocks(given.reference_after, after),
    )


def seen(*sm_mhz, **throttled):
    return Clocks(sm_mhz=list(sm_mhz), throttled={name.replace("_", " "): looks for name, looks in throttled.items()})


FULL, SLOW = seen(1980, 1980, 1965, 1980), seen(1755, 1755, 1740, 1755)


@pytest.mark.parametrize(
    ("before", "submission", "after", "code", "words"),
    [
        (FULL, SLOW, FULL, Code.GPU_CLOCK_MOVED, "1980 MHz in the reference's calls, and 1755 MHz in the submission's"),
        (SLOW, FULL, SLOW, Code.GPU_CLOCK_MOVED, "1755 MHz in the reference's calls, and 1980 MHz"),
        (SLOW, SLOW, SLOW, None, ""),  # Both sides alike: a fair comparison.
        (FULL, seen(1980, 1980, 1980, 1740), FULL, None, ""),
        (
            FULL,
            seen(1980, 1980, 1980, 1980, power_cap=1),
            FULL,
            Code.GPU_THROTTLED,
            "in the calls of the submission: power cap",
        ),
        (
            seen(1980, 1980, power_cap=2),
            FULL,
            seen(1980, 1980),
            Code.GPU_THROTTLED,
            "in the calls of the reference: power cap",
        ),
        (FULL, seen(1980, 1980, 1980, 1980, 1980, power_cap=1), FULL, None, ""),
        (seen(1980, power_cap=1), seen(1980, power_cap=1), seen(1980, power_cap=1), None, ""),
        (
            seen(1980, thermal_slowdown=1),
            seen(1980, thermal_slowdown=1),
            seen(1980, thermal_slowdown=1),
            Code.GPU_THROTTLED,
            "of the reference and of the submission: thermal slowdown",
        ),
        (FULL, None, FULL, None, ""),
        (None, SLOW, FULL, None, ""),
    ],
)
def test_clocks_that_differ_between_the_sides_are_told(before, submission, after, code, words):
    found = clock_findings(timing(before, submission, after))
    assert [each.code for each in found] == ([] if code is None else [code])
    assert all(words in each.message for each in found)


def test_a_grade_without_times_has_no_clocks_to_compare():
    assert clock_findings(None) == []


@pytest.fixture
def monitor_of(monkeypatch):
    """Make a monitor whose GPU has these clocks and states in turn, the last ones again and again.

    Returns the pauses that the judge makes, too."""
    pauses_s = []
    monkeypatch.setattr(gpu_monitor.time, "sleep", pauses_s.append)

    def made(looks=(COOL,), states=(QUIET,), own=frozenset()):
        for name, answers in (("look_at_clock", looks), ("state", states)):
            turns = itertools.chain(answers, itertools.repeat(answers[-1]))
            monkeypatch.setattr(gpu_monitor, name, lambda _, turns=turns: next(turns))
        return GpuMonitor(SimpleNamespace(), lambda: own), pauses_s

    return made


WARM, HOT = COOL._replace(temperature_c=50), COOL._replace(temperature_c=51)


@pytest.mark.parametrize(
    ("looks", "pauses"),
    [
        ([COOL, COOL], 0),
        ([COOL, WARM], 0),
        ([COOL, HOT, HOT, WARM], 2),
        ([HOT, COOL], 0),
        ([COOL, COOL._replace(throttled=(CAP,)), COOL], 1),
        ([COOL._replace(throttled=(CAP,)), COOL._replace(throttled=(CAP,))], 0),
        ([COOL, HOT], 20),  # Bounded.
        ([None, HOT], 0),
        ([COOL, HOT, None], 1),
    ],
)
def test_a_side_waits_until_the_gpu_is_as_cool_as_when_the_first_began(monitor_of, looks, pauses):
    made, waited = monitor_of(looks)
    first = made.begin_side()
    assert waited == []
    second = made.begin_side()
    assert len(waited) == pauses
    for watch, waited_s in ((first, 0.0), (second, 0.1 * pauses)):
        watch.look()
        if (clocks := watch.clocks()) is not None:
            assert clocks.waited_s == pytest.approx(waited_s)


@pytest.mark.parametrize(("looks", "resumes", "pauses"), [((COOL, HOT), True, 20), ((HOT, HOT), False, 0)])
def test_a_side_that_is_kept_from_an_earlier_grade_is_the_first_unless_the_gpu_is_hotter(
    monitor_of, looks, resumes, pauses
):
    made, waited = monitor_of(looks)
    assert made.resumes(QUIET._replace(temperature_c=40)) is resumes
    made.begin_side()
    assert len(waited) == pauses


def with_processes(*processes):
    return QUIET._replace(processes=processes)


@pytest.mark.parametrize(
    ("states", "own", "looks", "shared"),
    [
        ([with_processes()], frozenset(), 0, False),
        ([with_processes(7)], frozenset({7}), 0, False),
        ([with_processes(7), with_processes(7), with_processes()], frozenset(), 2, False),
        ([with_processes(7)], frozenset(), 20, True),
    ],
)
def test_a_process_that_ends_within_a_second_does_not_share_the_gpu(monitor_of, states, own, looks, shared):
    """The end of a judge that released the GPU."""
    found, pauses_s = monitor_of(states=states, own=own)
    assert len(pauses_s) == looks
    assert (Code.GPU_SHARED.value in [each.code for each in found.findings(None)]) is shared
