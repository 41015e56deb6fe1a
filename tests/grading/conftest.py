"""One grader for the session: the cache of builds is shared, nothing else."""

import pytest

pytest.register_assert_rewrite("tests.grading.harness")

from tests.grading.harness import Grader, passable_folder


@pytest.fixture(scope="session")
def grader():
    with passable_folder() as cache, passable_folder() as temporary:
        yield Grader(cache, temporary)


@pytest.fixture
def grade(grader, tmp_path):
    """Grade a submission in a fresh folder."""

    def run(*arguments, **options):
        return grader(tmp_path, *arguments, **options)

    return run
