"""What happens between two grades of a lasting context."""

from types import SimpleNamespace

import pytest
import torch

from evaluator.deadline import DeadlineReached
from evaluator.errors import JudgeFailed
from evaluator.judge.clock import gpu_session as gpu_session_module
from evaluator.judge.context.context_pool import ContextPool
from evaluator.judge.context.grade_context import GradeContext
from evaluator.judge.context.torch_state import TorchState
from evaluator.judge.runners.runner_pool import GPU_RUNNERS


@pytest.fixture
def pool():
    return ContextPool(SimpleNamespace(), lasting=True)


def kept_in(pool, refill):
    """Let the pool keep a context with this `refill`; return the list to which the context's end is added.

    The list also has False if the idle runners were condemned.
    """
    ended = []
    idle = SimpleNamespace(condemn=lambda: ended.append(False))
    pool._kept = (SimpleNamespace(terms=None, refill=refill, runners=SimpleNamespace(pool=idle)), None)
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


class Session:
    """A GPU session without a GPU, which records the calls of its methods."""

    def __init__(self, *_, **options):
        self.asked, self.is_in_the_way = [options], False

    def renew(self):
        self.asked.append("renew")

    def close(self):
        self.asked.append("close")


@pytest.fixture
def session(pool, monkeypatch):
    monkeypatch.setattr(gpu_session_module, "GpuSession", Session)
    return pool._session_for(SimpleNamespace(gpu="a GPU"))


def test_problems_on_a_gpu_share_its_session_until_the_pool_ends(pool, session):
    assert pool._session_for(SimpleNamespace(gpu="a GPU")) is session
    assert pool._session_for(SimpleNamespace(gpu=None)) is None
    kept_in(pool, None)
    pool.make_room("other terms", plans_memory=False)
    assert (pool._kept, session.asked[1:]) == (None, ["renew"])
    with pool:
        pass
    assert session.asked == [{"runner_pool": GPU_RUNNERS, "lasting": True}, "renew", "close"]


def changed_dtype():
    torch.set_default_dtype(torch.float64)


def changed_function():
    torch.nn.functional.relu = torch.nn.functional.gelu


def added_name():
    torch.nn.functional.added_by_a_problem = 1


@pytest.fixture
def torch_unchanged(monkeypatch):
    monkeypatch.setattr(torch.nn.functional, "relu", torch.nn.functional.relu)
    yield
    torch.set_default_dtype(torch.float32)
    vars(torch.nn.functional).pop("added_by_a_problem", None)


@pytest.mark.usefixtures("torch_unchanged")
@pytest.mark.parametrize(
    ("change", "awaited", "other", "ends"),
    [
        (None, False, True, False),
        (added_name, False, True, False),
        (changed_dtype, False, True, True),
        (changed_function, False, True, True),
        (changed_function, False, False, False),
        (None, True, True, True),
        (None, True, False, False),
    ],
)
def test_a_judge_ends_before_another_problem_if_torch_has_changed_or_others_wait(
    pool, session, change, awaited, other, ends
):
    kept_in(pool, None)
    pool._kept[0].terms = "terms"
    pool._torch_state, session.is_in_the_way = TorchState.now(), awaited
    if change is not None:
        change()
    assert pool.must_end("other terms" if other else "terms") is ends


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
