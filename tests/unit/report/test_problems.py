"""The text of a problem: prose fits a terminal of 80 columns, also in a pipe."""

import pytest
from msgspec.structs import replace

from evaluator.catalog import find_problem, list_problems
from evaluator.records import CheckRule, ElementFormat, Formats, OutputFormat
from evaluator.report.problems import problem_text


def test_a_check_of_the_problems_own_is_named():
    problem = find_problem("relu")
    assert "check(" not in problem_text(problem)
    text = problem_text(replace(problem, check=CheckRule.INSTEAD))
    assert "forward; check(inputs, outputs) instead of the comparison\n" in text


def test_declared_formats_are_listed():
    problem = find_problem("relu")
    assert "\nformats\n" not in problem_text(problem)
    outputs = {"output[0]": OutputFormat(ElementFormat.MXFP4, "output[1]"), "output[2]": OutputFormat(flips=1e-5)}
    text = problem_text(replace(problem, formats=Formats(inputs={"x": ElementFormat.INT8}, outputs=outputs)))
    assert "formats\n  x          int8\n  output[0]  mxfp4, scales of its blocks in output[1]" in text
    assert "\n  output[2]  1e-05 of the elements may be on the other side of a step\n" in text


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
