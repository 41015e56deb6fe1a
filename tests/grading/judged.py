"""Judges submissions in this process, with a context that stays for several of them."""

import contextlib
import math
from types import SimpleNamespace

import pytest

from evaluator.findings import Code
from evaluator.grade_options import GradeOptions
from evaluator.judge import stages, timing_stage
from evaluator.judge.context.grade_context import GradeContext
from evaluator.judge.context.reference_timing import ReferenceTimer
from evaluator.judge.setup.grade_terms import GradeTerms
from evaluator.judge.setup.seed_book import SeedBook
from evaluator.judge.trial import enough_calls
from evaluator.judge.trial.call_overhead import Overhead
from evaluator.judge.verdict import judge
from evaluator.progress import Silent, Stopwatch
from evaluator.records import DeviceKind, SizeName
from tests.fork_servers import shared_fork_server
from tests.grading.harness import PATIENT_BUILD_S, PATIENT_S

_BEFORE = SimpleNamespace(
    overhead=Overhead(0.0, 0.0, None, None, None, None, None), samples=SimpleNamespace(median_ms=math.inf)
)
_NO_REFERENCE = timing_stage.ReferenceSide(None, [])


def verdict(outcome):
    """Return the status and the code of the reason."""
    return outcome.status, None if outcome.reason is None else Code(outcome.reason.code)


def judged(context, source, *, timed=False):
    """Judge a submission; without `timed`, its checks alone."""
    context.turn_to(source, SeedBook(None, weight=context.seeds.weight))
    with pytest.MonkeyPatch.context() as untimed:
        if not timed:
            untimed.setattr(timing_stage, "measure_reference", lambda *_: _NO_REFERENCE)
            untimed.setattr(timing_stage, "measure_both", lambda *_: timing_stage.TimeOutcome(None, None, None, []))
        with ReferenceTimer(context) as timer:
            return judge(context, timer, Stopwatch(Silent()))


def judged_by_values(context, source):
    """Judge the values of a submission: the checks, and as many timed calls as a grade makes at least.

    Nothing else is timed: neither windows nor the reference.
    """

    def answers(context, timer, reference, right):
        with contextlib.ExitStack() as ends:
            timed = timing_stage._timed_submission(context, _BEFORE, right, ends)
        if isinstance(timed, timing_stage.TimeOutcome):
            return timed
        failed, _ = stages.check_precision(timed.runner.trial_runner, "timed")
        check, fault = (failed.check, failed.fault) if failed else (None, None)
        return timing_stage.TimeOutcome(None, check, fault, [])

    context.turn_to(source, SeedBook(None, weight=context.seeds.weight))
    with pytest.MonkeyPatch.context() as patch, ReferenceTimer(context) as timer:
        patch.setattr(enough_calls, "_ENOUGH_S", 0.0)
        patch.setattr(timing_stage, "measure_reference", lambda *_: _NO_REFERENCE)
        patch.setattr(timing_stage, "measure_both", answers)
        return judge(context, timer, Stopwatch(Silent()))


@contextlib.contextmanager
def context_of(problem, size=SizeName.FULL, device=DeviceKind.CPU, **options):
    """Yield the context of grades of a problem."""
    terms = GradeTerms(
        problem,
        GradeOptions(device=device, size=size, timeout_s=PATIENT_S, build_timeout_s=PATIENT_BUILD_S, **options),
        None,
        threads=1,
    )
    fork_server = shared_fork_server(device, terms.threads)
    with GradeContext(terms, "", SeedBook(None), fork_server=fork_server) as context:
        yield context
