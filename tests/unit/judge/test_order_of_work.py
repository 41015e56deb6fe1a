"""What of a grade comes first: the cheapest rejection, unless nothing is left to compile."""

import contextlib
from types import SimpleNamespace

import pytest

from evaluator.findings import Code, finding
from evaluator.judge import stages, verdict
from evaluator.judge.context import grade_context as workshops
from evaluator.judge.context.grade_context import GradeContext
from evaluator.progress import Silent, Stopwatch
from evaluator.records import Build, Fault, Status


@pytest.mark.parametrize("ahead", [False, True])
def test_a_problem_is_got_ready_before_the_build_only_where_nothing_is_left_to_compile(monkeypatch, ahead):
    done = []
    context = SimpleNamespace(
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
    assert verdict.judge(context, None, watch).status is Status.BUILD_ERROR
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


def workshop(gpu_session, *, speculative_build=None, ready=None):
    return SimpleNamespace(
        terms=SimpleNamespace(problem="a problem", size="full", gpu="a GPU"),
        _gpu_session=gpu_session,
        _speculative_build=speculative_build,
        _ready=ready,
        _get_ready=lambda: gpu_session.asked.append("get ready"),
        _take_over=lambda _: None,
        _had=lambda: SimpleNamespace(judge_bytes=7),
    )


@pytest.mark.parametrize(
    ("speculative_build", "ready", "asked"),
    [
        ("early", None, ["settle", "get ready", 7]),
        ("early", "ready", ["settle", 7]),  # It got ahead.
        (None, None, ["settle", "get ready", 7]),
        (None, "ready", ["settle", "watch", 7]),  # Of the submission before.
    ],
)
def test_what_got_ahead_is_not_made_again_and_each_submission_has_a_watch(monkeypatch, speculative_build, ready, asked):
    """And before each the judge has its memory: the roofline of the one before gave it back."""
    gpu_session = Foothold()
    monkeypatch.setattr(workshops, "keep_memory", gpu_session.asked.append)
    GradeContext.have_device(workshop(gpu_session, speculative_build=speculative_build, ready=ready))
    assert gpu_session.asked == asked


@pytest.mark.parametrize(("stands", "asked"), [(True, ["kept", "get ready", "let go"]), (False, ["kept", "let go"])])
def test_the_gpu_is_kept_as_long_as_a_problem_is_got_ready_on_it(stands, asked):
    gpu_session = Foothold(stands=stands)
    GradeContext.get_ahead(workshop(gpu_session))
    assert gpu_session.asked == asked


@pytest.mark.parametrize("has_built", [True, False])
def test_nothing_gets_ahead_while_something_is_compiled(has_built):
    context = workshop(Foothold(), speculative_build=SimpleNamespace(has_built=lambda: has_built))
    assert GradeContext.may_get_ahead(context) is has_built


@pytest.mark.parametrize("missing", ["_speculative_build", "_gpu_session"])
def test_nor_where_nothing_was_begun_early_or_there_is_no_gpu(missing):
    context = workshop(Foothold(), speculative_build=SimpleNamespace(has_built=lambda: True))
    setattr(context, missing, None)
    assert not GradeContext.may_get_ahead(context)


def test_a_submission_for_a_gpu_is_read_in_by_no_runner_of_those_in_the_making(monkeypatch):
    read_by = []

    class Session:
        def __init__(self, child, build_service):
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

    monkeypatch.setattr(workshops, "RunnerClient", Session)
    context = workshop(Foothold(), ready="ready")
    context.source = ""
    context._fork_server = SimpleNamespace(spawn=lambda entry: ("spawned", entry))
    context.terms.options = SimpleNamespace(timeout_s=7.0)
    monkeypatch.setattr(workshops, "load_frame", lambda *_: "a frame")
    assert GradeContext.read_in(context, None) is None
    assert read_by == [(("spawned", workshops.RUNNER), "a frame", 7.0)]
