"""What of a grade comes first: the cheapest rejection, unless nothing is left to compile."""

import contextlib
from types import SimpleNamespace

import pytest

from evaluator.findings import Code, finding
from evaluator.judge import stages, verdict
from evaluator.judge import workshop as workshops
from evaluator.judge.workshop import Workshop
from evaluator.progress import Silent, Stopwatch
from evaluator.records import Build, Fault, Status


@pytest.mark.parametrize("ahead", [False, True])
def test_a_problem_is_got_ready_before_the_build_only_where_nothing_is_left_to_compile(monkeypatch, ahead):
    done = []
    shop = SimpleNamespace(
        insist_on_walls=lambda: None,
        reach_for_device=lambda: done.append("reach"),
        may_get_ahead=lambda: ahead,
        get_ahead=lambda: done.append("problem"),
        lint=lambda: done.append("lint") or [],
        sandbox=None,
        output=None,
    )

    def build(_):
        done.append("build")
        refused = Fault(Status.BUILD_ERROR, finding(Code.COMPILE_FAILED, "no"))
        return stages.BuildOutcome(Build(ok=False, import_s=0.0, units=[]), refused)

    monkeypatch.setattr(stages, "build", build)
    watch = Stopwatch(Silent())
    assert verdict.judge(shop, None, watch).status is Status.BUILD_ERROR
    assert done == ["reach", *(["problem"] if ahead else []), "lint", "build"]
    assert ("device" in watch.stages_s) is ahead


class Foothold:
    """Notes what is asked of it."""

    def __init__(self, *, stands=True):
        self.asked = []
        self._stands = stands

    @contextlib.contextmanager
    def standing(self):
        self.asked.append("kept")
        yield self._stands
        self.asked.append("let go")

    def settle(self):
        self.asked.append("settle")

    def begin_watch(self):
        self.asked.append("watch")


def workshop(foothold, *, early=None, ready=None):
    return SimpleNamespace(
        terms=SimpleNamespace(problem="a problem", size="full", gpu="a GPU"),
        _foothold=foothold,
        _early=early,
        _ready=ready,
        _get_ready=lambda: foothold.asked.append("get ready"),
        _take_over=lambda _: None,
        _had=lambda: SimpleNamespace(judge_bytes=7),
    )


@pytest.mark.parametrize(
    ("early", "ready", "asked"),
    [
        ("early", None, ["settle", "get ready", 7]),
        ("early", "ready", ["settle", 7]),  # It got ahead.
        (None, None, ["settle", "get ready", 7]),
        (None, "ready", ["settle", "watch", 7]),  # Of the submission before.
    ],
)
def test_what_got_ahead_is_not_made_again_and_each_submission_has_a_watch(monkeypatch, early, ready, asked):
    """And before each the judge has its memory: the roofline of the one before gave it back."""
    foothold = Foothold()
    monkeypatch.setattr(workshops, "keep_memory", foothold.asked.append)
    Workshop.have_device(workshop(foothold, early=early, ready=ready))
    assert foothold.asked == asked


@pytest.mark.parametrize(("stands", "asked"), [(True, ["kept", "get ready", "let go"]), (False, ["kept", "let go"])])
def test_the_gpu_is_kept_as_long_as_a_problem_is_got_ready_on_it(stands, asked):
    foothold = Foothold(stands=stands)
    Workshop.get_ahead(workshop(foothold))
    assert foothold.asked == asked


@pytest.mark.parametrize("has_built", [True, False])
def test_nothing_gets_ahead_while_something_is_compiled(has_built):
    shop = workshop(Foothold(), early=SimpleNamespace(has_built=lambda: has_built))
    assert Workshop.may_get_ahead(shop) is has_built


@pytest.mark.parametrize("missing", ["_early", "_foothold"])
def test_nor_where_nothing_was_begun_early_or_there_is_no_gpu(missing):
    shop = workshop(Foothold(), early=SimpleNamespace(has_built=lambda: True))
    setattr(shop, missing, None)
    assert not Workshop.may_get_ahead(shop)


def test_a_submission_for_a_gpu_is_read_in_by_no_runner_of_those_in_the_making(monkeypatch):
    read_by = []

    class Session:
        def __init__(self, child, desk):
            self.child = SimpleNamespace(kill=lambda: None, output=lambda: None)
            self._starter_said = child

        def load(self, frame, descriptors, *, timeout_s):
            read_by.append((self._starter_said, frame, timeout_s))

        def under(self, deadline, *, own):
            """It has a deadline, which ends nothing here."""

        def farewell(self):
            """Nothing was printed."""

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(workshops, "Session", Session)
    shop = workshop(Foothold(), ready="ready")
    shop.source = ""
    shop._starter = SimpleNamespace(spawn=lambda entry: ("spawned", entry))
    shop.terms.options = SimpleNamespace(timeout_s=7.0)
    monkeypatch.setattr(workshops, "load_frame", lambda *_: "a frame")
    assert Workshop.read_in(shop, None) is None
    assert read_by == [(("spawned", workshops.RUNNER), "a frame", 7.0)]
