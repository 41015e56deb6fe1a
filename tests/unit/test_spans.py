"""Sums of a grade's host time: nested blocks, merged small sums, threads without a meter, and their cost."""

import contextlib
import threading

import msgspec
import pytest

from evaluator import spans
from evaluator.progress import Silent, Stopwatch
from evaluator.spans import MOST_SECTIONS, Operation, Section, SpanSum, metered, operation, section


class Hands:
    """Clock of a test, moved by hand."""

    def __init__(self):
        self.at_s = 0.0

    def __call__(self):
        return self.at_s

    def move(self, seconds):
        self.at_s += seconds


@pytest.fixture
def hands():
    return Hands()


def by_place(meter):
    return {(each.stage, each.sections, each.operation): (each.seconds, each.times) for each in meter.sums()}


def test_an_inner_block_interrupts_the_outer_one(hands):
    with metered(hands) as meter, spans.stage("time"):
        hands.move(1)
        with section(Section.SUBMISSION), section(Section.WINDOWS):
            for _ in range(3):
                with operation(Operation.COMPARISON):
                    hands.move(2)
                    with operation(Operation.FLOAT64):
                        hands.move(10)
                    hands.move(1)
            hands.move(0.5)
        hands.move(4)
    windows = (Section.SUBMISSION, Section.WINDOWS)
    assert by_place(meter) == {
        ("time", (), Operation.OTHER): (5.0, 1),
        ("time", windows, Operation.COMPARISON): (9.0, 3),
        ("time", windows, Operation.FLOAT64): (30.0, 3),
        ("time", windows, Operation.OTHER): (0.5, 1),
    }


def test_the_sums_of_a_stage_add_up_to_the_stage(hands):
    with metered(hands) as meter:
        hands.move(100)  # outside of all stages
        with spans.stage("check"):
            for number in range(50):
                with operation(list(Operation)[number % len(Operation)]):
                    hands.move(0.0001 * number)
                hands.move(0.01)
    assert sum(each.seconds for each in meter.sums()) == pytest.approx(sum(range(50)) * 0.0001 + 0.5)
    assert {each.stage for each in meter.sums()} == {"check"}


def test_small_sums_are_part_of_their_stage(hands):
    with metered(hands) as meter, spans.stage("check"):
        with section(Section.CALLS), operation(Operation.INPUTS):
            hands.move(0.0009)
        with section(Section.CALLS), operation(Operation.WEIGHTS):
            hands.move(0.0011)
    assert by_place(meter) == {
        ("check", (), Operation.OTHER): (0.0009, 1),
        ("check", (Section.CALLS,), Operation.WEIGHTS): (0.0011, 1),
    }


def test_an_exception_ends_its_blocks(hands):
    with metered(hands) as meter, spans.stage("time"):
        with contextlib.suppress(ValueError), section(Section.CALLS), operation(Operation.CALL):
            hands.move(1)
            raise ValueError
        hands.move(2)
    assert by_place(meter) == {
        ("time", (Section.CALLS,), Operation.CALL): (1.0, 1),
        ("time", (), Operation.OTHER): (2.0, 1),
    }


def test_a_stage_without_blocks_is_left_out(hands):
    with metered(hands) as meter:
        with spans.stage("lint"):
            hands.move(1)
        with spans.stage("check"), operation(Operation.PLAIN):
            hands.move(1)
    assert [each.stage for each in meter.sums()] == ["check"]


def test_another_thread_and_code_outside_of_a_grade_have_no_meter(hands):
    def work():
        with operation(Operation.LEASE):
            hands.move(5)

    with metered(hands) as meter, spans.stage("check"), operation(Operation.PLAIN):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    work()
    assert by_place(meter) == {("check", (), Operation.PLAIN): (5.0, 1)}


def test_an_operation_inside_of_the_same_one_counts_once(hands):
    with metered(hands) as meter, spans.stage("check"), operation(Operation.INPUTS):
        with operation(Operation.INPUTS):
            hands.move(1)
        hands.move(1)
    assert by_place(meter) == {("check", (), Operation.INPUTS): (2.0, 1)}


def test_a_stopwatch_measures_its_stages(hands):
    with metered(hands) as meter, Stopwatch(Silent()).stage("check"), operation(Operation.PLAIN):
        hands.move(1)
    assert by_place(meter)["check", (), Operation.PLAIN] == (1.0, 1)


def test_deep_nesting_is_limited_and_recorded(hands):
    def nested(depth):
        with section(Section.CALLS):
            if depth:
                nested(depth - 1)
            else:
                hands.move(1)

    with metered(hands) as meter, spans.stage("check"):
        nested(20)
    (only,) = meter.sums()
    assert len(only.sections) == MOST_SECTIONS
    assert msgspec.json.decode(msgspec.json.encode(only), type=SpanSum) == only


def test_a_block_reads_the_clock_twice():
    reads = []
    with metered(lambda: float(len(reads.append(0) or reads))), spans.stage("time"):
        before = len(reads)
        with operation(Operation.CALL):
            pass
        assert len(reads) - before == 2
