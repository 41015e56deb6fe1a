"""What happens between two grades of a lasting context."""

from types import SimpleNamespace

import pytest

from evaluator.deadline import DeadlineReached
from evaluator.errors import JudgeFailed
from evaluator.judge.context.context_pool import ContextPool
from evaluator.judge.context.grade_context import GradeContext


@pytest.fixture
def pool():
    return ContextPool(SimpleNamespace(), lasting=True)


def kept_in(pool, refill):
    """Let the pool keep a context with this `refill`; return the list to which the context's end is added.

    The list also has False if the idle runners were condemned.
    """
    ended = []
    idle = SimpleNamespace(condemn=lambda: ended.append(False))
    pool._kept = (SimpleNamespace(refill=refill, runners=SimpleNamespace(pool=idle)), None)
    pool._leaving.callback(ended.append, True)
    return ended


def test_an_idle_pool_without_a_context_starts_nothing(pool):
    pool.refill()
    assert pool._kept is None


def test_the_kept_context_starts_its_processes_and_stays(pool):
    refilled = []
    ended = kept_in(pool, lambda: refilled.append(True))
    pool.refill()
    assert (refilled, ended, pool._kept is None) == ([True], [], False)


@pytest.mark.parametrize("failure", [JudgeFailed("no process"), BlockingIOError("no process")])
def test_a_context_that_cannot_start_processes_is_dropped(pool, failure):
    def refill():
        raise failure

    ended = kept_in(pool, refill)
    pool.refill()
    assert (ended, pool._kept) == ([False, True], None)


def test_idle_runners_release_their_contexts_while_the_reference_s_runners_end(pool):
    ended = kept_in(pool, None)
    with pool:
        assert ended == []
    assert (ended, pool._kept) == ([False, True], None)


def test_an_interruption_at_the_end_of_a_context_still_ends_it(pool):
    ended = kept_in(pool, None)

    def interrupted():
        raise DeadlineReached

    pool._kept[0].runners.pool.condemn = interrupted
    with pytest.raises(DeadlineReached), pool:
        pass
    assert (ended, pool._kept) == ([True], None)


@pytest.mark.parametrize(("gpu_session", "started"), [(None, ["runners", "children"]), (object(), [])])
def test_a_context_with_a_gpu_starts_nothing_between_grades(gpu_session, started):
    found = []
    context = SimpleNamespace(
        gpu_session=gpu_session,
        runners=SimpleNamespace(pool=SimpleNamespace(refill=lambda: found.append("runners"))),
        _spare_children=SimpleNamespace(refill=lambda: found.append("children")),
    )
    GradeContext.refill(context)
    assert found == started
