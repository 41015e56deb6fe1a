"""What happens between two grades of a lasting context."""

import contextlib
from types import SimpleNamespace

import pytest
import torch

from evaluator.deadline import DeadlineReached
from evaluator.errors import JudgeFailed
from evaluator.judge.clock import gpu_session as gpu_session_module
from evaluator.judge.context import grade_context, reference_timing
from evaluator.judge.context.context_pool import ContextPool
from evaluator.judge.runners.runner_pool import GPU_RUNNERS
from evaluator.records import DeviceKind


class Context:
    """A kept context: `did` has what became of it and of its idle runners, `on_refill` and `on_condemn` may raise."""

    on_refill = on_condemn = staticmethod(lambda: None)

    def __init__(self, terms, source, seeds, *, gpu_session, **_):
        self.terms, self.seeds, self.gpu_session, self.did = terms, seeds, gpu_session, []
        self.runners = SimpleNamespace(pool=SimpleNamespace(condemn=lambda: self._do("condemned", self.on_condemn)))

    def _do(self, what, also):
        also()
        self.did.append(what)

    def refill(self):
        self._do("refilled", self.on_refill)

    def turn_to(self, source, seeds, deadline):
        self.did.append(f"turned to {source}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.did.append("ended")


class Session:
    """A GPU session without a GPU, which records the calls of its methods."""

    is_in_the_way = False

    def __init__(self, *_, **options):
        self.asked = [options]

    def renew(self):
        self.asked.append("renew")

    def close(self):
        self.asked.append("close")


@pytest.fixture
def pool(monkeypatch):
    monkeypatch.setattr(grade_context, "GradeContext", Context)
    monkeypatch.setattr(reference_timing, "ReferenceTimer", lambda *_, **__: contextlib.nullcontext())
    monkeypatch.setattr(gpu_session_module, "GpuSession", Session)
    return ContextPool(SimpleNamespace(), lasting=True)


def terms(problem, gpu=None):
    return SimpleNamespace(problem=problem, gpu=gpu, device=DeviceKind.CPU)


def graded(pool, of=None, source="one"):
    """Grade a submission of a problem, and return its context."""
    of = of or terms("a problem")
    pool.make_room(of, plans_memory=False)
    with pool.context_for(of, source, None) as (context, _):
        return context


def test_a_pool_without_a_context_starts_nothing(pool, monkeypatch):
    contexts = []
    monkeypatch.setattr(grade_context, "GradeContext", lambda *_, **__: contexts.append(1))
    monkeypatch.setattr(gpu_session_module, "GpuSession", lambda *_, **__: contexts.append(1))
    pool.refill()
    with pool:
        pool.refill()
    assert contexts == []


def test_submissions_of_a_problem_share_a_context_that_starts_its_processes_between_them(pool):
    first = graded(pool)
    pool.refill()
    assert graded(pool, source="two") is first
    assert first.did == ["refilled", "turned to two"]
    assert graded(pool, terms("another")) is not first
    assert first.did[-2:] == ["condemned", "ended"]


@pytest.mark.parametrize("failure", [JudgeFailed("no process"), BlockingIOError("no process")])
def test_a_context_that_cannot_start_processes_is_dropped(pool, failure):
    def refill():
        raise failure

    first = graded(pool)
    first.on_refill = refill
    pool.refill()
    assert first.did == ["condemned", "ended"]
    assert graded(pool) is not first


def test_idle_runners_release_their_contexts_while_the_references_runners_end(pool):
    with pool:
        context = graded(pool)
        assert context.did == []
    assert context.did == ["condemned", "ended"]


def test_an_interruption_at_the_end_of_a_context_still_ends_it(pool):
    def interrupted():
        raise DeadlineReached

    context = graded(pool)
    context.on_condemn = interrupted
    with pytest.raises(DeadlineReached), pool:
        pass
    assert context.did == ["ended"]


def test_problems_on_a_gpu_share_its_session_until_the_pool_ends(pool):
    first, second = (graded(pool, terms(name, "a GPU")) for name in ("one", "another"))
    session = first.gpu_session
    assert second.gpu_session is session
    assert first.did == ["ended"], "the idle runners are the session's"
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
def test_a_judge_ends_before_another_problem_if_torch_has_changed_or_others_wait(pool, change, awaited, other, ends):
    context = graded(pool, terms("one", "a GPU"))
    context.gpu_session.is_in_the_way = awaited
    if change is not None:
        change()
    assert pool.must_end(terms("another" if other else "one", "a GPU")) is ends
