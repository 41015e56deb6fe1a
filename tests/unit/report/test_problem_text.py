"""The text of a problem: prose fits a terminal of 80 columns, also in a pipe."""

import pytest
from msgspec.structs import replace

from evaluator.catalog import find_problem, list_problems
from evaluator.report.problems import problem_text


@pytest.mark.parametrize("problem", list_problems(None).problems, ids=lambda each: each.name)
def test_descriptions_wrap_at_80_columns(problem):
    text = problem_text(replace(problem, source="", path="problems/x"))
    prose = text.split("\n\ncases\n")[0]
    assert max(map(len, prose.splitlines())) <= 80
    assert " ".join(problem.description.split()) in " ".join(prose.split())


def test_lines_of_the_author_stay():
    problem = replace(find_problem("relu", None), description="first\n\nsecond " + "word " * 40 + "\n" + "x" * 90)
    prose = problem_text(problem).split("\n\ncases\n")[0].splitlines()
    assert "first" in prose
    assert prose[prose.index("first") + 1] == ""
    assert "x" * 90 in prose
