"""What a submission is held against beside the reference: quoting, keeping, the command's options, the screen."""

import contextlib
import io
from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from rich.console import Console

from evaluator.catalog import find_problem
from evaluator.errors import UsageError
from evaluator.findings import Code, finding
from evaluator.grade_options import GradeOptions, read_options
from evaluator.judge.compare.tolerance import Bounds
from evaluator.judge.context.reference_timing import Reading
from evaluator.judge.exhibits import other_baselines
from evaluator.judge.exhibits.other_baselines import _with_room
from evaluator.judge.setup.grade_terms import GradeTerms
from evaluator.judge.trial.call_overhead import Overhead
from evaluator.records import (
    Baseline,
    BaselineKind,
    ClockKind,
    DeviceKind,
    Fault,
    L2Rule,
    Precision,
    Status,
    Tf32,
    ToleranceRule,
)
from evaluator.report.card.card_screen import render_card
from evaluator.timing.quote import over_baseline
from tests import cards

EMPTY = Overhead(0.02, 0.001, None, None, None, None, None)


def baseline(median_ms=1.0, **changes):
    plain = Baseline(
        kind=BaselineKind.COMPILE,
        tf32=Tf32.DEFAULT,
        name=None,
        sha256=None,
        measured_at="2026-01-02T03:04:05Z",
        kept=False,
        reference_median_ms=2.0,
        samples=cards.samples("baseline", median_ms),
        speedup=None,
        speedup_low=None,
        speedup_high=None,
        significant=None,
        finding=None,
    )
    return replace(plain, **changes)


def screen(*found, **changes):
    buffer = io.StringIO()
    render_card(cards.card(baselines=list(found), **changes), Console(file=buffer, width=80))
    return " ".join(buffer.getvalue().replace("\N{MULTIPLICATION SIGN}", "x").split())


def held_against(baseline, submission_ms):
    return over_baseline(baseline, cards.samples("submission", submission_ms), ClockKind.HOST)


def test_a_baseline_is_quoted_by_the_rules_for_the_reference():
    found = held_against(baseline(1.0), 0.5)
    assert found.speedup == pytest.approx(2.0)
    assert found.speedup_low < 2.0 < found.speedup_high
    assert found.significant
    too_short = held_against(baseline(0.010), 0.010)
    assert (too_short.speedup, too_short.significant) == (None, False)
    assert too_short.speedup_low < 1 < too_short.speedup_high


def test_what_was_not_timed_is_passed_on():
    failed = baseline(samples=None, finding=finding(Code.BASELINE_FAILED, "it does not compile"))
    assert held_against(failed, 0.5) == failed
    assert "torch.compile, PyTorch's TF32 default: it does not compile" in screen(failed)


def test_time_that_a_baseline_had_unwatched_is_in_its_interval():
    assert held_against(baseline(3.0), 2.0).speedup == pytest.approx(1.5)
    doubtful = held_against(baseline(samples=replace(cards.samples("baseline", 3.0), unwatched_ms=1.2)), 2.0)
    assert (doubtful.speedup, doubtful.significant) == (None, False)


class Context:
    """A grade on a GPU whose baseline does not load; `did` has its work in order, and the TF32 settings."""

    reference = SimpleNamespace(source="")

    def __init__(self, *kinds, precision=Precision.FP32, **options):
        problem = replace(find_problem("relu"), precision=precision)
        gpu = SimpleNamespace(uuid="GPU-1", driver="1")
        self.terms = GradeTerms(problem, GradeOptions(DeviceKind.CUDA, baselines=kinds, **options), gpu, threads=1)
        self.did, self.runners = [], self

    def settle(self):
        self.did.append("settle")

    @contextlib.contextmanager
    def start(self, source, build_service, *, trusted):
        self.did.append("start")
        yield SimpleNamespace(load=self._load)

    def _load(self, tf32):
        self.did.append(tf32)
        return Fault(Status.RUNTIME_ERROR, finding(Code.IMPORT_FAILED, "it does not load"))

    def measured(self, reference_ms=2.0):
        """Return the baselines beside a reference that takes that long."""
        samples = replace(cards.samples("reference", reference_ms), iqr_ms=0.001)
        return other_baselines.measured(self, Reading(samples, EMPTY, None))


@pytest.mark.parametrize(
    ("kind", "precision", "expected"),
    [
        (BaselineKind.EAGER, Precision.FP32, [Tf32.DEFAULT]),
        (BaselineKind.COMPILE, Precision.FP32, [Tf32.DEFAULT, Tf32.OFF]),
        (BaselineKind.COMPILE, Precision.TF32, [Tf32.DEFAULT, Tf32.ON]),
    ],
)
def test_tf32_as_pytorch_has_it_and_as_the_problem_says(kind, precision, expected):
    """Before each baseline is timed, other work has ended."""
    context = Context(kind, precision=precision)
    found = context.measured()
    assert [each.tf32 for each in found] == expected
    assert all("it does not load" in each.finding.message for each in found)
    assert context.did == [step for tf32 in expected for step in ("settle", "start", tf32)]


@pytest.fixture
def cached(monkeypatch):
    """Have a cache with a baseline of 2 ms under each key, until it is forgotten; returns the keys asked for."""
    keys, forgotten = [], []

    def measured_once(parts, kind, measure):
        keys.append(str(parts))
        return measure() if parts in forgotten else baseline(reference_median_ms=2.0)

    monkeypatch.setattr(other_baselines, "measured_once", measured_once)
    monkeypatch.setattr(other_baselines, "forget", lambda parts, _: forgotten.append(parts))
    return keys


@pytest.mark.usefixtures("cached")
@pytest.mark.parametrize(("reference_ms", "is_kept"), [(2.03, True), (2.2, False)])
def test_a_kept_one_holds_as_long_as_the_reference_takes_its_time(reference_ms, is_kept):
    (found,) = Context(BaselineKind.EAGER).measured(reference_ms)
    assert found.kept is is_kept
    assert (found.finding is None) is is_kept


def test_a_kept_baseline_holds_for_the_same_state_of_the_l2_cache(cached):
    for l2 in L2Rule:
        (found,) = Context(BaselineKind.EAGER, l2=l2).measured()
        assert found.kept
    assert len({*cached}) == len(cached) == 2


def test_tf32_has_the_room_that_it_needs_and_equality_stays_equality():
    seen = []
    compare = _with_room(lambda path, sides, bounds: seen.append(bounds))
    compare("output", None, Bounds(ToleranceRule.MEASURED, 4.0, 5e-5, 1e-6))
    compare("output", None, None)
    assert [each and each.floor for each in seen] == [1e-2, None]


@pytest.mark.parametrize(
    ("wanted", "device", "message"),
    [
        (["compile"], DeviceKind.EMULATED, "measures no time"),
        (["eager"], DeviceKind.CPU, "PyTorch's TF32 default"),
    ],
)
def test_a_device_that_has_no_use_for_a_baseline_says_so(wanted, device, message):
    with pytest.raises(UsageError, match=message):
        read_options({"baselines": wanted, "device": device})


def test_a_baseline_asked_for_twice_is_one():
    options = read_options({"baselines": ["compile", "compile"], "device": "cpu"})
    assert options.baselines == (BaselineKind.COMPILE,)


def test_the_screen_says_which_and_by_how_much():
    quoted = baseline(speedup=1.61, speedup_low=1.59, speedup_high=1.63, significant=True, kept=True)
    expected = "torch.compile, PyTorch's TF32 default: 1.00 ms, 1.61 x between 1.59 and 1.63 x cached on 2026-01-02"
    assert expected in screen(quoted)
    other = baseline(kind=BaselineKind.SUBMISSION, tf32=Tf32.OFF, name="\x1b[2J[red]mine", speedup_low=0.9)
    assert "[red]mine: 1.00 ms, no speedup quoted; above 0.900 x" in screen(other)
