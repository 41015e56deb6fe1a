"""The numbers of a report, against what one gets by counting."""

import itertools
import json
import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.records import Status
from evaluator.report.run.intervals import geometric_mean, share, student_95
from evaluator.report.run.run_tables import described, document, markdown
from evaluator.report.run.summary import MISSING, THRESHOLDS, Device, RunSample, pass_at_k, sections, summarise
from tests.batch.samples import EMULATED, sample

CPU = Device("cpu", "a processor", timed=True)
OTHER = Device("cpu", "another one", timed=True)


@given(st.lists(st.booleans(), min_size=1, max_size=9), st.data())
def test_pass_at_k_is_the_share_of_all_draws_with_a_correct_one(outcomes, data):
    k = data.draw(st.integers(1, len(outcomes)))
    draws = list(itertools.combinations(outcomes, k))
    assert pass_at_k(len(outcomes), sum(outcomes), k) == pytest.approx(sum(map(any, draws)) / len(draws), abs=1e-12)


@pytest.mark.parametrize(("samples", "correct", "k"), [(3, 1, 0), (3, 1, 4), (3, 4, 1), (3, -1, 1), (0, 0, 1)])
def test_pass_at_k_refuses_what_cannot_be_estimated(samples, correct, k):
    with pytest.raises(ValueError, match="cannot be estimated"):
        pass_at_k(samples, correct, k)


def test_pass_at_k_of_many_samples_does_not_overflow():
    assert 0.0951 < pass_at_k(10_000, 10, 100) < 0.0962


@st.composite
def samples(draw, device=CPU):
    status = draw(st.sampled_from([None, *Status]))
    speedup = draw(st.none() | st.floats(0.01, 100)) if status is Status.CORRECT and device.timed else None
    return RunSample(
        problem=draw(st.sampled_from("abc")),
        level=draw(st.integers(1, 2)),
        name="any",
        device=None if status is None else device,
        status=status,
        built=status is not None and (status is Status.CORRECT or draw(st.booleans())),
        speedup=speedup,
    )


@given(st.lists(samples(), min_size=1, max_size=30))
def test_shares_and_means_count_all_samples(given_samples):
    said = summarise(given_samples, timed=True)
    count = len(given_samples)
    assert said.samples == count == sum(said.statuses.values())
    assert said.statuses.get(MISSING, 0) == sum(each.status is None for each in given_samples)
    assert said.built.value == sum(each.built for each in given_samples) / count
    for p in THRESHOLDS:
        fast = [each for each in given_samples if each.correct and (p == 0 or (each.speedup or 0) > p)]
        assert said.fast[p].value == pytest.approx(len(fast) / count)
        assert said.fast[p].low <= said.fast[p].value <= said.fast[p].high
    assert said.fast[0.0] == said.correct
    by_problem = {problem: [each.correct for each in given_samples if each.problem == problem] for problem in "abc"}
    shares = [sum(found) / len(found) for found in by_problem.values() if found]
    assert (said.pass_at[1].value, said.pass_at_problems[1]) == (pytest.approx(statistics.fmean(shares)), len(shares))
    quoted = [each.speedup for each in given_samples if each.correct and each.speedup is not None]
    assert said.unquoted == sum(each.correct for each in given_samples) - len(quoted)
    if not quoted:
        assert said.speedup is said.speedup_or_1 is None
        return
    product = math.prod(quoted)
    assert said.speedup.value == pytest.approx(product ** (1 / len(quoted)))
    assert said.speedup_or_1.value == pytest.approx(product ** (1 / count))


def test_a_device_without_a_clock_says_nothing_of_speed():
    said = summarise([RunSample("a", 1, "x", EMULATED, Status.CORRECT, built=True)], timed=False)
    assert said.correct.value == 1
    assert [said.fast[p] for p in THRESHOLDS if p] == [None] * (len(THRESHOLDS) - 1)
    assert (said.speedup, said.speedup_or_1, said.unquoted) == (None, None, 0)


@given(st.lists(samples(CPU) | samples(OTHER) | samples(EMULATED), min_size=1, max_size=30))
def test_devices_are_never_mixed_and_missing_ones_count_on_each(given_samples):
    said = sections(given_samples, CPU)
    missing = [each for each in given_samples if each.device is None]
    on = {device: [each for each in given_samples if each.device == device] for device in (CPU, OTHER, EMULATED)}
    used = {device for device, found in on.items() if found} or {CPU}
    assert {section.device for section in said} == used
    for section in said:
        assert section.total == summarise([*on[section.device], *missing], timed=section.device.timed)
        assert sum(each.samples for each in section.levels.values()) == section.total.samples
        assert sum(each.samples for each in section.problems.values()) == section.total.samples


def kernelbench(number, *outcomes, speedup=2.0):
    """Samples of a problem of level 1."""
    return [
        sample(
            *(f"sample_{at}", speedup if right else None, Status.CORRECT if right else Status.WRONG_RESULT),
            problem=f"level1/{number}_X",
            device=CPU,
        )
        for at, right in enumerate(outcomes)
    ]


def test_a_problem_of_a_level_without_a_sample_counts_as_not_correct():
    found = [*kernelbench(1, True), *kernelbench(2, True, False), *kernelbench(3, False)]
    (section,) = sections(found, CPU, {1: 100, 2: 100})
    assert section.levels[1].correct.value == 2 / 4
    (level,) = section.whole_levels.values()
    assert (level.problems, level.tried) == (100, 3)
    assert level.correct == share(1.5, 100)
    assert (level.fast[1.0], level.fast[2.0].value) == (share(1.5, 100), 0.0)
    (made,) = described(section).tables
    assert made.title == "Of all problems of a level, as KernelBench counts"
    assert made.rows[0][:2] == ["level 1 (3 of 100 tried)", "1.5 %"]
    assert json.loads(json.dumps(document([section])))["devices"][0]["whole_levels"]["1"]["correct"]["value"] == 0.015


@pytest.mark.parametrize("size", [1, 2])
def test_a_level_with_a_sample_of_each_problem_is_not_shown_twice(size):
    """The size comes from the manifest of a run folder, which may be anybody's."""
    (section,) = sections([*kernelbench(1, True), *kernelbench(2, False)], CPU, {1: size})
    assert section.whole_levels[1].correct == section.levels[1].correct == share(1, 2)
    assert described(section).tables == []


def test_problems_are_in_the_order_of_their_numbers():
    (section,) = sections([each for number in (10, 9, 1, 2) for each in kernelbench(number, True)], CPU)
    assert [name.partition("_")[0] for name in section.problems] == ["level1/1", "level1/2", "level1/9", "level1/10"]


def test_each_remark_is_a_paragraph_of_markdown():
    (section,) = sections([RunSample("a", 1, "x", EMULATED, Status.CORRECT, built=True)], EMULATED)
    assert "\n\nemulated measures no time.\n" in markdown([section])


def test_nothing_gives_nothing():
    assert sections([], CPU) == []
    assert share(0, 0) is None
    assert geometric_mean([]) is None


def test_wilsons_interval_covers():
    """Of all outcomes of n tosses, weighed by their probability, about 95 % have the truth in their interval."""
    for n, p in itertools.product((10, 30, 100), (0.1, 0.5, 0.8)):
        covered = 0.0
        for heads in range(n + 1):
            found = share(heads, n)
            if found.low <= p <= found.high:
                covered += math.comb(n, heads) * p**heads * (1 - p) ** (n - heads)
        assert 0.92 < covered < 0.99


def test_students_t_meets_published_values():
    # Tables of the t distribution, two-sided 5 %.
    for freedom, published in ((1, 12.706), (5, 2.571), (30, 2.042), (31, 2.0395), (40, 2.0211), (120, 1.9799)):
        assert student_95(freedom) == pytest.approx(published, abs=1e-3)


def test_the_interval_of_a_geometric_mean_narrows_with_the_number():
    few, many = geometric_mean([1.0, 2.0, 4.0]), geometric_mean([1.0, 2.0, 4.0] * 10)
    assert few.value == pytest.approx(2) == pytest.approx(many.value)
    assert few.low < many.low < 2 < many.high < few.high
    assert geometric_mean([3.0]).low is None
