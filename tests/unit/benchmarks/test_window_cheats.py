"""The table of cheats of windows: problems and texts at each duration, states and gains, and a command that resumes."""

import re
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from benchmarks.timing import window_cheats
from benchmarks.timing.window_cheat_rows import (
    CHEATS,
    DURATIONS_US,
    SCALES,
    Graded,
    State,
    cheats_text,
    entry_of,
    exit_code,
    line_of,
    lines_of,
    problem_of,
    table,
    twin_of,
    write_problem,
)
from evaluator.catalog import find_problem, sized_source
from evaluator.judge.clock.device_backend import CallSizes
from evaluator.judge.setup import memory_plan
from evaluator.records import SizeName, Status
from tests.zoo.entries import ZOO

FIRST = CHEATS[0]
SIZE = SCALES["relu"].guesses[5]
FEW_CALLS_BYTES = 6 << 30


def graded(name, call_us=5.0, **changes):
    plain = Graded(
        name=name,
        duration_us=5,
        constants=SIZE,
        status=Status.CORRECT,
        speedup=1.0,
        call_us=call_us,
        low_us=None if call_us is None else call_us - 0.1,
        high_us=None if call_us is None else call_us + 0.1,
        calls="windows",
    )
    return replace(plain, **changes)


def grades(*several):
    return {(each.name, each.duration_us): each for each in several}


def line(cheat=FIRST, twin=None, **changes):
    twin = graded(twin_of(cheat)) if twin is None else twin
    return line_of(cheat, 5, grades(twin, graded(cheat.title, **changes)))


def whole(**changes):
    """Give a grade of everything, in which every cheat is as fast as its twin."""
    names = {name for cheat in CHEATS for name in (cheat.title, twin_of(cheat))}
    every = [replace(graded(name), duration_us=us) for name in names for us in DURATIONS_US]
    return grades(*every) | grades(*changes.values())


def test_every_way_to_cheat_in_windows_has_a_row_and_every_row_a_scale():
    assert {cheat.row for cheat in CHEATS} == {path.name for path in ZOO.glob("window-*")}
    assert {cheat.form for cheat in CHEATS} - {None} == set((ZOO / "windows").glob("*.py"))
    assert {problem_of(cheat) for cheat in CHEATS} == set(SCALES)


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.title)
def test_texts_and_problems_load_and_have_windows(cheat, tmp_path):
    us = DURATIONS_US[0]
    assert "class ModelNew" in cheats_text(cheat, us)
    assert "class ModelNew" in (ZOO / twin_of(cheat)).read_text()
    constants = SCALES[problem_of(cheat)].guesses[us]
    entry = entry_of(cheat)
    problem = find_problem(str(write_problem(entry, constants, tmp_path)))
    assert problem.cases[SizeName.FULL].axes == constants
    assert problem.cases[SizeName.SMALL].axes == entry.problem().cases[SizeName.SMALL].axes
    text = sized_source(problem, SizeName.FULL)
    assert all(re.search(rf"^{name} = {value}$", text, re.MULTILINE) for name, value in constants.items())
    plan = memory_plan.plan(problem, SizeName.FULL)
    calls = CallSizes(plan.input_bytes + plan.state_bytes, plan.output_bytes).window_calls(FEW_CALLS_BYTES)
    assert calls > 1
    if certain := re.search(r"^CERTAIN = (\d+)$", cheats_text(cheat, us), re.MULTILINE):
        assert int(certain[1]) <= calls - max(calls // 4, 2) + 1


@pytest.mark.parametrize(
    ("taken_us", "rows"), [(5.0, 256), (6.4, 256), (10.0, 128), (2.5, 512), (0.0, 256), (5000.0, 64), (0.001, 1024)]
)
def test_a_problem_is_scaled_towards_its_duration_within_limits(taken_us, rows):
    assert SCALES["relu"].rescaled(5, SIZE, taken_us) == {**SIZE, "batch_size": rows}


@pytest.mark.parametrize(("call_us", "code"), [(4.4, 1), (4.6, 0), (6.0, 0)])
def test_a_quoted_gain_is_twin_less_cheat(call_us, code):
    found = line(call_us=call_us)
    assert (found.state, found.gain_us, found.note) == (State.QUOTED, pytest.approx(5.0 - call_us), "")
    assert exit_code([found]) == code


def test_the_table_has_every_cheat_at_every_duration_and_marks_a_gain():
    assert exit_code(lines_of(whole()).values()) == 0
    assert "Not complete" not in table(whole())
    page = table(whole(faster=graded(FIRST.title, call_us=4.0)))
    assert len(re.findall(r"^\| .* \| \d+ us \|", page, re.MULTILINE)) == len(CHEATS) * len(DURATIONS_US)
    assert "| 5 us | quoted | 4.00 (windows) | 5.00 (windows) | **+1.00** | +0.80 to +1.20 |" in page
    assert "1 gain more than 0.5 us" in page
    assert exit_code(lines_of({}).values()) == 3
    assert f"- {FIRST.title}, 5 us: not graded" in table({})


@pytest.fixture
def processes(monkeypatch):
    """Stand in for processes: each is asked for its groups' names, and writes what `verdicts` has, up to a failure."""
    state = SimpleNamespace(asked=[], failing=set())

    def run(group, options, until_s):
        state.asked.append((group.duration_us, tuple(group.names)))
        for name in group.names:
            if name in state.failing:
                return "ended with -9"
            window_cheats.write(options.output, replace(graded(name), duration_us=group.duration_us))
        return "ended with 0"

    monkeypatch.setattr(window_cheats, "_in_a_process", run)
    return state


def command(output, *more):
    return window_cheats.main(["--output", str(output), "--device", "cpu", *more])


@pytest.mark.slow
def test_a_failed_grade_is_reported_and_the_others_go_on_and_a_repeated_command_tries_it_again(processes, tmp_path):
    output = tmp_path / "cheats.jsonl"
    processes.failing = {FIRST.title}
    assert command(output) == 3
    page = output.with_suffix(".md").read_text()
    assert "24 of 27 lines are complete" in page
    assert f"- {FIRST.title}, 200 us: ended with -9" in page
    processes.failing, processes.asked = set(), []
    assert command(output) == 0
    assert processes.asked == [(us, (FIRST.title,)) for us in DURATIONS_US]
    processes.asked = []
    assert command(output) == 0
    assert processes.asked == []
