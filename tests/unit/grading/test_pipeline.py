"""What a grade comes to where the judge itself breaks."""

import contextlib

import pytest
from msgspec.structs import replace

from evaluator.catalog import find_problem
from evaluator.deadline import Deadline
from evaluator.errors import JudgeFailed, OutlivesKill, ProblemError, UsageError
from evaluator.files.card_files import card_bytes
from evaluator.findings import ENTRIES, Code, finding
from evaluator.grade_options import GradeOptions
from evaluator.grading import pipeline
from evaluator.grading.request import Begun, GradeRequest, Unread, threads
from evaluator.judge.setup.distribution_mix import DistributionMix
from evaluator.judge.setup.grade_terms import GradeTerms
from evaluator.judge.setup.seed_book import SeedBook
from evaluator.progress import Silent
from evaluator.records import DeviceKind, Profile, SizeName, Status
from evaluator.submission.read import Submission

TEXT = "class ModelNew: pass\n"
SUBMISSION = Submission(
    name="x", origin="x.py", sha256="0" * 64, source=TEXT, extracted_from_answer=False, line_offset=0, findings=()
)
HOSTILE = "\x1b[2J\udcff correct"
"""What a submission could have written of the judge's error: an escape sequence, and half of a character."""


class Context:
    """A context that has got as far as its seeds."""

    seeds = SeedBook(None)


class Pool:
    """Hands out that one; leaving it raises what it is told to."""

    def __init__(self, at_the_end=None):
        self._at_the_end = at_the_end

    def make_room(self, terms, *, plans_memory):
        pass

    def kill_all(self):
        pass

    @contextlib.contextmanager
    def context_for(self, terms, source, card, deadline):
        yield Context(), None
        if self._at_the_end is not None:
            raise self._at_the_end


REQUEST = GradeRequest(
    SUBMISSION,
    GradeTerms(
        find_problem("relu"),
        GradeOptions(device=DeviceKind.CPU, size=SizeName.SMALL, build_timeout_s=60.0),
        gpu=None,
        threads=threads(),
    ),
)


@pytest.fixture
def grade(monkeypatch):
    """Grade with a judge that raises `error`, in the middle or (`late`) when its verdict is known."""

    def run(error, *, late=False):
        from evaluator.judge import verdict
        from evaluator.records import Outcome

        def judge(context, timer, stopwatch):
            if late:
                return Outcome(status=Status.CORRECT)
            raise error

        monkeypatch.setattr(verdict, "judge", judge)
        return pipeline.grade(REQUEST, Silent(), Pool(error if late else None))

    return run


def test_a_card_names_the_values_that_calls_may_have_wherever_that_is_settled(monkeypatch):
    from evaluator.judge import verdict
    from evaluator.records import Outcome

    def judge(context, timer, stopwatch):
        context.seeds.settle(DistributionMix((Profile.LARGE,)))  # On a GPU that is known only when it is at hand.
        return Outcome(status=Status.CORRECT)

    monkeypatch.setattr(Context, "seeds", SeedBook(None))
    monkeypatch.setattr(verdict, "judge", judge)
    assert pipeline.grade(REQUEST, Silent(), Pool()).seeds.profiles == [Profile.LARGE]


@pytest.mark.parametrize("late", [False, True])
def test_an_error_nobody_thought_of_is_a_card_and_no_pass(grade, capsys, caplog, late):
    card = grade(ZeroDivisionError(f"oops {HOSTILE}"), late=late)
    assert (card.status, card.reason.code) == (Status.INFRA_ERROR, Code.OWN_FAULT.value)
    assert card.reason.message == "ZeroDivisionError: oops  correct"
    assert card.seeds is not None
    assert card.submission.source == TEXT
    assert card_bytes(card)
    (record,) = caplog.records
    assert record.name == "warpgrade"
    assert "Traceback" in record.message
    assert "ZeroDivisionError: oops  correct" in record.message
    assert "\x1b" not in record.message
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("error", "code", "step"),
    [
        (JudgeFailed("a disk is full"), Code.JUDGE_FAILED, ENTRIES[Code.JUDGE_FAILED].next_step),
        (JudgeFailed("a disk is full", hint="free space in $TMPDIR"), Code.JUDGE_FAILED, "free space in $TMPDIR"),
        (MemoryError("1 TiB"), Code.JUDGE_MEMORY, ENTRIES[Code.JUDGE_MEMORY].next_step),
    ],
)
def test_what_this_machine_lacks_is_told_without_a_traceback(grade, capsys, caplog, error, code, step):
    card = grade(error)
    assert (card.status, card.reason.code) == (Status.INFRA_ERROR, code.value)
    assert (capsys.readouterr().err, caplog.records) == ("", [])
    assert card.reason.next_step == step


def test_a_failure_after_the_deadline_is_the_deadlines(monkeypatch):
    """At the deadline all processes are killed, and a step that starts a runner fails."""
    from evaluator.judge import verdict

    now_s = [0.0]

    def judge(context, timer, stopwatch):
        now_s[0] = 1e9
        raise JudgeFailed("the init process of a runner ended: Broken pipe")

    monkeypatch.setattr(pipeline, "Deadline", lambda limit_s: Deadline(limit_s, clock=lambda: now_s[0]))
    monkeypatch.setattr(verdict, "judge", judge)
    card = pipeline.grade(REQUEST, Silent(), Pool())
    assert (card.status, card.reason.code) == (Status.INFRA_ERROR, Code.DEADLINE.value)


def test_processes_that_outlive_their_kill_are_the_submissions_doing(grade):
    card = grade(OutlivesKill("210 processes of a runner were not gone 20 s after their kill"))
    assert (card.status, card.reason.code) == (Status.RUNTIME_ERROR, Code.NOT_STOPPED.value)


@pytest.mark.parametrize("error", [ProblemError("its forward raises"), KeyboardInterrupt()])
def test_what_is_for_the_user_to_mend_or_to_end_is_raised(grade, error):
    with pytest.raises(type(error)):
        grade(error)


class NoPool:
    """Fails a grade that asks for a context, and with it for a runner."""

    def make_room(self, terms, *, plans_memory):
        raise AssertionError("a runner was about to be started")

    def kill_all(self):
        pass


@pytest.mark.parametrize("begin", [False, True])
@pytest.mark.parametrize("source", ["", "\n", "import torch\nclass Net(torch.nn.Module): pass\n"])
def test_a_text_that_cannot_define_modelnew_starts_nothing(source, begin):
    request = replace(REQUEST, submission=replace(SUBMISSION, source=source))
    card = pipeline.begin(request, Silent(), NoPool()) if begin else pipeline.grade(request, Silent(), NoPool())
    assert (card.status, card.reason.code) == (Status.BUILD_ERROR, Code.NO_MODEL_NEW)
    assert card.submission.source == source
    assert ("empty" in card.reason.message) is (source.strip() == "")


def test_a_text_that_could_is_judged():
    for source in ("exec(TEXT)", "from kernels import *", "ModelNew = None"):
        request = replace(REQUEST, submission=replace(SUBMISSION, source=source))
        with pytest.raises(AssertionError, match="about to be started"):
            pipeline.grade(request, Silent(), NoPool())


def test_only_the_part_that_calls_the_reference_plans_its_memory(monkeypatch):
    from evaluator.judge import verdict
    from evaluator.judge.context.context_pool import ContextPool
    from evaluator.judge.setup import memory_plan
    from evaluator.records import Outcome

    def too_large(problem, size, gpu):
        raise UsageError("too large")

    monkeypatch.setattr(memory_plan, "refuse_what_does_not_fit", too_large)
    monkeypatch.setattr(verdict, "begin", lambda *_: Outcome())
    monkeypatch.setattr(ContextPool, "context_for", Pool.context_for)
    monkeypatch.setattr(ContextPool, "_at_the_end", None, raising=False)
    pool = ContextPool(None, lasting=True)
    monkeypatch.setattr(pool, "kill_all", lambda: None)
    begun = pipeline.begin(REQUEST, Silent(), pool)
    assert isinstance(begun, Begun)
    with pytest.raises(UsageError, match="too large"):
        pipeline.grade(REQUEST, Silent(), pool, begun)


def test_a_text_that_was_cut_off_is_a_build_error():
    reason = finding(Code.CUT_OFF, "the last block is never closed")
    request = replace(REQUEST, submission=Unread(name="x", origin="x.md", finding=reason))
    card = pipeline.grade(request, Silent(), NoPool())
    assert (card.status, card.reason) == (Status.BUILD_ERROR, reason)
