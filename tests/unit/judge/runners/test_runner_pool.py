"""A pool's runner that fails to warm up is replaced once."""

import threading

import pytest

from evaluator.deadline import DeadlineReached
from evaluator.errors import JudgeFailed
from evaluator.judge.runners.runner_pool import RunnerPool
from evaluator.protocol.frames import Closed
from evaluator.records import DeviceKind


class Runner:
    """A runner whose context needs memory that another process may hold."""

    def __init__(self, fails):
        self.fails, self.is_warm, self.has_ended, self.interrupts = fails, False, False, False
        self.is_dead = False
        self.child = self

    def warm(self, device):
        assert device is DeviceKind.CUDA
        if self.is_dead:
            raise Closed("the runner has ended")

    def warmed(self, timeout_s):
        if self.fails:
            raise JudgeFailed("CUDA out of memory")
        self.is_warm = True

    def condemn(self):
        if self.interrupts:
            raise DeadlineReached

    def members(self):
        return frozenset({id(self)})

    def poll_exit(self):
        return None

    def __exit__(self, *_):
        self.has_ended = True


class Made(list):
    """The runners that a pool has started, in order; `before_start` may wait or raise."""

    def __init__(self, failing):
        self._failing, self.before_start = failing, lambda: None

    def spawn(self):
        self.before_start()
        self.append(Runner(len(self) in self._failing))
        return self[-1]


@pytest.fixture
def pool():
    """Make a pool of two runners, of which `taken` are taken; those with the numbers `failing` do not warm up."""

    def make(*failing, taken=0):
        runners = Made(failing)
        pool = RunnerPool(runners.spawn, DeviceKind.CUDA, 2)
        pool.refill()
        for _ in range(taken):
            pool.take()
        return pool, runners

    return make


@pytest.mark.parametrize("failing", [0, 1])
def test_a_runner_that_found_no_memory_is_replaced_when_the_memory_is_free(pool, failing):
    """The submission whose load took the memory has ended, and the next one must not pay."""
    made, runners = pool(failing)
    made.settle()
    taken = [made.take(), made.take()]
    assert len(runners) == 3
    assert all(runner.is_warm and not runner.has_ended for runner in taken)
    assert runners[failing].has_ended


def test_taking_a_runner_replaces_one_too(pool):
    made, runners = pool(0)
    assert made.take() is runners[2]
    assert made.take() is runners[1]


def test_an_interruption_at_the_end_leaves_no_runner(pool):
    made, runners = pool()
    runners[0].interrupts = True
    with pytest.raises(DeadlineReached):
        made.close()
    assert all(runner.has_ended for runner in runners)
    assert made.processes == frozenset()


def test_a_second_failure_is_the_judges(pool):
    made, runners = pool(0, 2)
    with pytest.raises(JudgeFailed, match="out of memory"):
        made.settle()
    assert runners[0].has_ended
    made.close()
    assert all(runner.has_ended for runner in runners[1:])


def test_runners_started_beside_checks_warm_up_when_asked(pool):
    made, runners = pool(taken=2)
    made.begin_refill()
    assert made.processes == frozenset(id(runner) for runner in runners[2:])
    assert len(runners) == 4
    made.settle()
    assert not any(runner.is_warm for runner in runners[2:]), "no context may be made beside a timing"
    made.warm()
    made.settle()
    assert all(runner.is_warm for runner in runners[2:])


def test_of_two_started_runners_the_one_taken_warms_up_alone(pool):
    """Another try is timed at once: no context may be made beside it."""
    made, runners = pool(taken=2)
    made.begin_refill()
    assert made.take() is runners[2]
    assert runners[2].is_warm
    made.settle()
    assert not runners[3].is_warm


def test_a_started_runner_that_died_costs_no_verdict(pool):
    """The machine's memory may be short."""
    made, runners = pool(taken=2)
    made.begin_refill()
    made.settle()
    runners[2].is_dead = True
    made.warm()
    assert runners[2].has_ended
    assert made.take() is runners[3]


def begin_slowly(made, runners):
    """Begin a refill whose first process starts after a tenth of a second."""
    may_start = threading.Event()
    runners.before_start = lambda: may_start.wait(60)
    made.begin_refill()
    threading.Timer(0.1, may_start.set).start()


def test_runners_are_settled_when_their_processes_are_there(pool):
    made, runners = pool(taken=2)
    begin_slowly(made, runners)
    made.settle()
    assert len(runners) == 4


@pytest.mark.parametrize("error", [JudgeFailed("no process could be started"), OSError(24, "too many open files")])
def test_the_failure_of_a_start_is_raised_where_its_runner_is_needed(pool, error):
    """At the end of a grade for any other reason, it must take the place of no other error."""
    made, runners = pool(taken=1)

    def refuse():
        raise error

    runners.before_start = refuse
    made.begin_refill()
    with pytest.raises(type(error)):
        made.warm()
    made.begin_refill()
    made.condemn()
    made.close()
    assert runners[1].has_ended
    assert made.processes == frozenset()


def test_the_end_of_a_pool_ends_a_runner_that_is_starting(pool):
    made, runners = pool(taken=1)
    begin_slowly(made, runners)
    made.close()
    assert len(runners) == 3
    assert all(runner.has_ended for runner in runners[1:])
