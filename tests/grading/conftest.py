"""One grader for the session: the cache of builds is shared with all tests of the run, nothing else."""

import pytest
from msgspec.structs import replace

from evaluator.catalog import find_problem
from evaluator.judge.context.reference_timing import ReferenceTimer
from evaluator.judge.setup.seed_book import SeedBook
from evaluator.judge.verdict import judge
from evaluator.progress import Silent, Stopwatch
from evaluator.records import SizeName
from tests import once
from tests.grading.harness import PATIENT_S, Grader, passable_folder
from tests.grading.judged import context_of


@pytest.fixture(scope="session")
def grader():
    with passable_folder() as temporary:
        yield Grader(once.folder_for("cache"), temporary)


@pytest.fixture
def grade(grader, tmp_path):
    """Grade a submission in a fresh folder, by the command line."""

    def run(*arguments, **options):
        return grader(tmp_path, *arguments, **options)

    return run


@pytest.fixture(scope="session")
def judged():
    """Judge submissions for `relu` in one context: ten times as fast as by the command line."""
    with context_of(find_problem("relu"), SizeName.AWKWARD) as context, ReferenceTimer(context) as timer:
        terms = context.terms

        def run(source, timeout_s=PATIENT_S):
            context.turn_to(source, SeedBook(None, weight=context.seeds.weight))
            context.terms = terms._replace(options=replace(terms.options, timeout_s=timeout_s))
            return judge(context, timer, Stopwatch(Silent()))

        yield run
