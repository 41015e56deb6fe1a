"""What of a grade comes first: the cheapest rejection, unless nothing is left to compile."""

from types import SimpleNamespace

import pytest

from evaluator.findings import Code, finding
from evaluator.judge import stages, verdict
from evaluator.judge.session import Fault
from evaluator.judge.workshop import Workshop
from evaluator.records import Build, Status
from evaluator.report.live import Silent
from evaluator.stopwatch import Stopwatch


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
    assert verdict.judge(shop, watch).status is Status.BUILD_ERROR
    assert done == ["reach", *(["problem"] if ahead else []), "lint", "build"]
    assert ("device" in watch.stages_s) is ahead


class Foothold:
    """Notes what is asked of it."""

    def __init__(self, *, stands=True):
        self.asked = []
        self._stands = stands

    def stands(self):
        return self._stands

    def settle(self):
        self.asked.append("settle")

    def begin_watch(self):
        self.asked.append("watch")


@pytest.mark.parametrize(
    ("early", "ready", "asked"),
    [
        ("early", None, ["settle", "get ready"]),
        ("early", "ready", ["settle"]),  # It got ahead.
        (None, None, ["settle", "get ready"]),
        (None, "ready", ["settle", "watch"]),  # Of the submission before.
    ],
)
def test_what_got_ahead_is_not_made_again_and_each_submission_has_a_watch(early, ready, asked):
    foothold = Foothold()
    shop = SimpleNamespace(
        _foothold=foothold,
        _early=early,
        _ready=ready,
        _get_ready=lambda: foothold.asked.append("get ready"),
        _take_over=lambda _: None,
    )
    Workshop.have_device(shop)
    assert foothold.asked == asked


@pytest.mark.parametrize(
    ("has_built", "stands", "may"), [(True, True, True), (False, True, False), (True, False, False)]
)
def test_nobody_gets_ahead_while_something_is_compiled_or_another_has_the_gpu(has_built, stands, may):
    shop = SimpleNamespace(_early=SimpleNamespace(has_built=lambda: has_built), _foothold=Foothold(stands=stands))
    assert Workshop.may_get_ahead(shop) is may


@pytest.mark.parametrize("missing", ["_early", "_foothold"])
def test_nor_where_nothing_was_begun_early_or_there_is_no_gpu(missing):
    shop = SimpleNamespace(_early=SimpleNamespace(has_built=lambda: True), _foothold=Foothold())
    setattr(shop, missing, None)
    assert not Workshop.may_get_ahead(shop)
