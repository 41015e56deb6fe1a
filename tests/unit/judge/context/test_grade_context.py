"""Order of the runners, regions and leases that a grade's context makes and ends, without processes or a GPU."""

import contextlib
from types import SimpleNamespace

import pytest
import torch

from evaluator.catalog import find_problem
from evaluator.errors import JudgeFailed
from evaluator.grade_options import GradeOptions
from evaluator.judge.context import grade_context, runner_factory
from evaluator.judge.context.grade_context import GradeContext
from evaluator.judge.setup.distribution_mix import AS_GIVEN_ALONE
from evaluator.judge.setup.grade_terms import GradeTerms
from evaluator.judge.setup.seed_book import SeedBook
from evaluator.records import DeviceKind


class World:
    """All that a context starts: the pool of runners, the children, a fork server and a GPU session note their calls.

    The session is `usable` for an early setup, unless another grade has the GPU.
    """

    children = ("an idle runner",)

    def __init__(self):
        self.did, self.usable, self.failure, self.runner_pool = [], True, None, self
        self.lasting = False

    @contextlib.contextmanager
    def kept(self):
        self.did.append("kept")
        yield self.usable
        self.did.append("released")

    def settle(self):
        self.did.append("settle")

    def start_monitor(self):
        self.did.append("monitor")

    def warm(self):
        self.did.append("warm")
        raise self.failure

    def end_all(self, but=()):
        self.did.append([*but])

    def refill(self):
        self.did.append("refill")

    def close(self, *_):
        pass


@pytest.fixture
def world(monkeypatch):
    made = World()
    setup = SimpleNamespace(judge_bytes=7, distribution_mix=AS_GIVEN_ALONE)
    builders = SimpleNamespace(builder_of=lambda _: None, close=lambda _: None, wait=lambda: None)
    monkeypatch.setattr(grade_context, "device_builders", lambda *_, **__: builders)
    monkeypatch.setattr(grade_context, "set_up_problem", lambda *_: made.did.append("set up") or setup)
    monkeypatch.setattr(grade_context, "keep_memory", made.did.append)
    children = SimpleNamespace(spawn=None, refill=lambda: made.did.append("children"), close=made.close)
    monkeypatch.setattr(grade_context, "SpareChildren", lambda _: children)
    monkeypatch.setattr(runner_factory, "RunnerPool", lambda *_: made)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", torch.backends.cudnn.allow_tf32)  # A GPU's context sets it.
    return made


def context_in(world, *, gpu=True, **options):
    terms = GradeTerms(
        find_problem("relu"),
        GradeOptions(DeviceKind.CUDA if gpu else DeviceKind.CPU),
        SimpleNamespace(uuid="GPU-1") if gpu else None,
        2,
    )
    made = GradeContext(terms, "one", SeedBook(None), fork_server=world, gpu_session=world if gpu else None, **options)
    world.did.clear()
    return made


def test_a_problem_is_set_up_once_and_each_submission_has_a_monitor(world):
    """And before each the judge has its memory: the roofline of the one before gave it back."""
    context = context_in(world, lasting=True)
    context.take_device()
    assert world.did == ["settle", "set up", 7]
    context.turn_to("two", SeedBook(None, weight=context.seeds.weight))
    context.take_device()
    assert world.did[3:] == ["settle", "monitor", 7]


@pytest.mark.parametrize("usable", [True, False])
def test_the_gpu_is_kept_as_long_as_a_problem_is_set_up_on_it(world, usable):
    world.usable = usable
    context = context_in(world, speculative_build=SimpleNamespace(in_front_of=lambda builder: builder))
    context.set_up_early()
    assert world.did == ["kept", *(["set up"] if usable else []), "released"]
    world.did.clear()
    context.take_device()
    assert world.did == ["settle", *([] if usable else ["set up"]), 7]


@pytest.mark.parametrize(
    ("gpu", "has_built", "may"),
    [(True, True, True), (True, False, False), (True, None, False), (False, True, False)],
    ids=["all is built", "something is compiled", "nothing was begun early", "no GPU"],
)
def test_a_problem_may_be_set_up_early_beside_no_compiler(world, gpu, has_built, may):
    build = SimpleNamespace(has_built=lambda: has_built, in_front_of=lambda builder: builder)
    context = context_in(world, gpu=gpu, speculative_build=None if has_built is None else build)
    assert context.may_set_up_early() is may


@pytest.mark.parametrize("lasting", [True, False])
def test_the_end_of_a_problem_spares_the_idle_runners_of_a_lasting_session(world, lasting):
    world.lasting = lasting
    with context_in(world):
        pass
    assert {*map(tuple, world.did)} == {world.children if lasting else ()}


@pytest.mark.parametrize(("gpu", "started"), [(False, ["refill", "children"]), (True, [])])
def test_a_context_with_a_gpu_starts_nothing_between_grades(world, gpu, started):
    context_in(world, gpu=gpu, lasting=True).refill()
    assert world.did == started


@pytest.mark.parametrize("error", [JudgeFailed("no process could be started"), OSError(24, "too many open files")])
def test_an_idle_runner_that_does_not_start_costs_no_finished_verdict(world, error):
    world.failure = error
    for gpu, warmed in ((True, ["warm"]), (False, [])):
        context_in(world, gpu=gpu).warm_idle_runners()
        assert world.did == warmed


def test_the_next_submission_starts_as_constructed_with_the_references_weights(world):
    context = context_in(world, gpu=False, lasting=True)
    context.in_training, context.seeded_because, context.kernel_cache = True, "pairs without a proof", b"kernels"
    context.turn_to("two", SeedBook(None, weight=context.seeds.weight))
    facts = (context.source, context.in_training, context.seeded_because, context.kernel_cache)
    assert facts == ("two", False, None, b"")
