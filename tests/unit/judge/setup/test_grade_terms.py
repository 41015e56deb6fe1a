"""What holds for a grade where its options and its problem both say something."""

import pytest
from msgspec.structs import replace

from evaluator.catalog import find_problem
from evaluator.grade_options import GradeOptions
from evaluator.judge.setup.grade_terms import GradeTerms
from evaluator.records import DeviceKind, L2Rule

COLD, WARM = L2Rule


@pytest.mark.parametrize(
    ("asked", "of_problem", "graded"),
    [(None, COLD, COLD), (None, WARM, WARM), (WARM, COLD, WARM), (COLD, WARM, COLD)],
)
def test_the_option_for_the_l2_cache_comes_before_the_problems(asked, of_problem, graded):
    problem = replace(find_problem("relu"), l2=of_problem)
    assert GradeTerms(problem, GradeOptions(DeviceKind.CUDA, l2=asked), None, 1).l2 is graded
