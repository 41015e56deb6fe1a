"""How a time was measured stands where the time is quoted: windows or single calls, L2, host, clocks."""

import io

import pytest
from msgspec.structs import replace
from rich.console import Console

from evaluator.api.scorecard import html
from evaluator.records import CallKind, ClockKind, Clocks, L2Inputs, L2Rule, Scorecard
from evaluator.report.card.card_screen import render_card
from evaluator.report.card.feedback import feedback
from evaluator.report.card.measurement import clocks_line, host_line, measurement, samples_of
from evaluator.report.ci.step_summary import card_markdown
from evaluator.report.ci.verdicts import concise, verdict_of
from evaluator.report.page.charts import samples_chart
from evaluator.report.page.detail import detail_of
from evaluator.report.run.exports import GradedSample, documents
from evaluator.timing.quote import over_baseline, quote
from tests import cards

MIXED = [
    (
        "the reference in single calls, the submission in windows of calls; the interval includes the larger error of "
        "single calls"
    ),
    "inputs cold in L2",
    "host-bound: GPU 10.0 us a call, host 14.0 us",
    (
        "GPU clock 1980 MHz in the reference's calls, 1755 MHz in the submission's; the driver reduced it in 3 of 4 "
        "readings of the submission"
    ),
]


def screen(card: Scorecard) -> str:
    """The card's screen on one line."""
    console = Console(file=io.StringIO(), width=200)
    render_card(card, console)
    return " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]


FORMS = {
    "screen": screen,
    "feedback": feedback,
    "markdown": card_markdown,
    "page": lambda card: detail_of(card).times,
    "notebook": lambda card: " ".join(html(card).replace("&#x27;", "'").split()),
}


def test_each_circumstance_has_a_sentence() -> None:
    assert measurement(cards.mixed_card(), "u") == MIXED
    assert measurement(cards.card()) == ["both sides in single calls"]
    assert measurement(cards.windows_card())[0] == "both sides in windows of calls"
    assert measurement(cards.wrong_card()) == []


@pytest.mark.parametrize("form", [name for name in FORMS if name != "notebook"])
def test_each_form_has_each_sentence(form: str) -> None:
    text = FORMS[form](cards.mixed_card()).replace("µs", "us")
    assert [line for line in MIXED if line not in text] == []


@pytest.mark.parametrize("form", FORMS)
def test_windows_beside_single_calls_are_never_silent(form: str) -> None:
    assert "the reference in single calls" in FORMS[form](cards.mixed_card())
    assert "the reference in single calls" not in FORMS[form](cards.windows_card())


@pytest.mark.parametrize("form", FORMS)
def test_the_interval_stands_beside_the_speedup(form: str) -> None:
    card = cards.windows_card()
    assert card.timing is not None
    assert card.timing.speedup_low is not None
    low = f"{card.timing.speedup_low:.2f}"
    assert low in FORMS[form](card)


def test_windows_that_shared_work_are_single_calls() -> None:
    shared = cards.in_windows(cards.samples("submission", 0.1), 0.010, shared_work=True)
    assert (shared.kind, samples_of([shared])) == (CallKind.SINGLE, "50 verified calls")
    of_windows = cards.in_windows(cards.samples("submission", 0.1), 0.010)
    assert (of_windows.kind, samples_of([of_windows])) == (CallKind.WINDOWS, "50 windows of 24 to 31 verified calls")


def test_a_reference_that_is_host_bound_alone_is_named() -> None:
    timing = cards.windows_card().timing
    assert timing is not None
    before = cards.in_windows(cards.samples("reference", 0.1), 0.020, host_ms=0.031)
    assert host_line(timing) is None
    bound = quote(ClockKind.SEALED, before, timing.submission, before).timing
    assert host_line(bound) == "host-bound: the reference's GPU 20.0 µs a call, its host 31.0 µs"
    waiting = replace(before, waits_for_gpu=True)
    assert "the reference's forward waits" in str(host_line(replace(timing, reference_after=waiting)))


def test_one_clock_on_both_sides_is_one_number() -> None:
    timing = cards.mixed_card().timing
    assert timing is not None
    quiet = Clocks(sm_mhz=[1980, 1965, 1980])
    sides = {name: replace(getattr(timing, name), clocks=quiet) for name in ("reference_before", "submission")}
    assert clocks_line(replace(timing, **sides)) == "GPU clock 1980 MHz"
    unread = replace(timing.submission, clocks=Clocks(sm_mhz=[]))
    assert clocks_line(replace(timing, submission=unread)) is None


def test_numbers_of_a_forged_card_have_no_limit() -> None:
    card = cards.mixed_card()
    timing = card.timing
    assert timing is not None
    assert timing.submission.windows is not None
    huge = 10**400
    clocks = Clocks(sm_mhz=[huge, -huge], throttled={"sw_power_cap": huge})
    windows = replace(timing.submission.windows, calls=[huge])
    forged = replace(timing, submission=replace(timing.submission, clocks=clocks, windows=windows))
    said = " ".join(measurement(replace(card, timing=forged, l2=L2Inputs(rule=L2Rule.WARM, limit_bytes=huge))))
    assert "2 of 2 readings" in said
    assert len(said) < 600
    assert windows.call_ms == []
    assert len(samples_of([forged.submission])) < 80


def test_a_line_for_continuous_integration_names_both_kinds() -> None:
    assert concise([verdict_of(cards.mixed_card(), "a.py")]).endswith(", windows against single calls\n")
    assert "windows" not in concise([verdict_of(cards.windows_card(), "a.py")])


def test_the_chart_counts_windows_and_calls() -> None:
    timing = cards.mixed_card().timing
    assert timing is not None
    drawn = samples_chart(timing)
    assert "reference, 50 calls" in drawn
    assert "submission, 4 windows" in drawn


def test_kernelbench_has_it_in_the_metadata() -> None:
    found = documents([GradedSample("level1/19_ReLU", "sample_0", cards.mixed_card())])
    (entry,) = found.results[1]["19"]
    assert entry["metadata"]["warpgrade_measured"] == measurement(cards.mixed_card())
    assert entry["runtime"] == pytest.approx(0.010, rel=0.02)


def test_a_baseline_of_another_kind_is_named() -> None:
    submission = cards.in_windows(cards.samples("submission", 0.1), 0.010)
    reference = cards.in_windows(cards.samples("reference", 0.1), 0.020)
    waiting = replace(cards.samples("baseline", 0.400), waits_for_gpu=True)
    beside = [cards.baseline(of) for of in (reference, waiting)]
    timing = quote(ClockKind.SEALED, reference, submission, reference).timing
    baselines = [over_baseline(each, submission, ClockKind.SEALED) for each in beside]
    card = cards.windows_card(timing=timing, baselines=baselines)
    text = screen(card)
    assert text.count("its single calls against the submission's windows") == 1
    assert text.count("host-bound: host waits for the GPU") == 1
    assert "Speedup over the baseline compile: 2.00" in feedback(card)
    assert "the baseline in windows." in feedback(card)
