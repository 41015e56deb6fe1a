"""Reading of `workload.jsonl`: cases beside the sizes, and the errors of files by strangers."""

import json

import pytest

from evaluator.catalog import find_problem, sized_source
from evaluator.catalog.workload import MOST_CASES
from evaluator.errors import ProblemError
from evaluator.records import Case
from evaluator.report.problems import problem_text
from tests.unit.catalog.texts import REFERENCE

WITH_PAIR = REFERENCE.replace("factor = 2.0", "factor = 2.0\nheight = width = 8")


@pytest.fixture
def read(own):
    """Read a problem with the given text of its workload."""
    return lambda workload: find_problem(str(own(reference=WITH_PAIR, workload=workload)))


FULL = {"rows": 64, "factor": 2.0, "height": 8, "width": 8}
SOL = {
    "uuid": "b3a1-4f",
    "axes": {"rows": 3},
    "inputs": {"x": {"type": "random"}},
    "tolerance": {"max_atol": 1e-3, "required_matched_ratio": 0.99},
}
OURS = {"name": "decode", "axes": {}, "weight": 32, "origin": "Llama-3.1-8B, batch 16"}


def test_sizes_and_lines_are_cases(read):
    problem = read("\n".join(json.dumps(each) for each in (SOL, OURS, {"axes": {"rows": 5}})) + "\n\n")
    assert list(problem.cases) == ["full", "small", "b3a1-4f", "decode", "case_3"]
    assert problem.workload == ("b3a1-4f", "decode", "case_3")
    assert problem.cases["small"] == Case("small", {"rows": 4, "factor": 0.5})
    assert problem.cases["b3a1-4f"] == Case("b3a1-4f", {**FULL, "rows": 3}, uuid="b3a1-4f", tolerance=SOL["tolerance"])
    assert problem.cases["decode"] == Case("decode", FULL, 32.0, "Llama-3.1-8B, batch 16")
    assert "rows = 5" in sized_source(problem, "case_3")
    assert "decode  rows = 64, factor = 2.0, height = 8, width = 8; weight 32; Llama-3.1-8B, batch 16" in problem_text(
        problem
    )


def test_the_workload_is_part_of_the_problem_s_hash(read):
    assert read(json.dumps(SOL)).sha256 != read(json.dumps(OURS)).sha256


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "has no case"),
        ("{", "line 1: not JSON"),
        ("[" * 30_000, "line 1: not JSON"),
        ('{"axes": {"rows": 1' + "0" * 5000 + "}}", "line 1: not JSON"),
        ('{"axes": {}, "weight": NaN}', "line 1: not JSON"),
        ("[1]", "line 1: the file: expected `object`, got `array`"),
        ('{"axes": {}}\n{"axes": {}, "wieght": 1}', "line 2: wieght: unknown key; allowed: uuid, axes, inputs"),
        ('{"name": "one"}', "line 1: axes: this key is required"),
        ('{"axes": 3}', "line 1: axes: expected `object`, got `int`"),
        ('{"axes": {"row": 3}}', "axes.row: reference.py has no module-level constant row"),
        ('{"axes": {"rows": 3.5}}', "axes.rows: got 3.5, expected int"),
        ('{"axes": {"rows": true}}', "axes.rows: got True, expected int"),
        ('{"axes": {"rows": 36893488147419103232}}', "axes.rows: got an integer of more than 64 bits"),
        ('{"axes": {"factor": 1e999}}', "line 1: not JSON"),
        ('{"axes": {"width": 4}}', "axes.width: shares its literal with height; set both to one value"),
        ('{"axes": {}, "name": "small"}', "name: small is taken"),
        ('{"axes": {}, "name": "hidden_1"}', "name: hidden_1 is taken"),
        ('{"axes": {}, "name": "../x"}', "name: '../x' cannot be a name"),
        ('{"axes": {}, "uuid": "a\\u001b[2J"}', "uuid: got .* expected one printable line"),
        ('{"axes": {}, "name": "a"}\n{"axes": {}, "name": "a"}', "line 2: name: line 1 has the name a too"),
        ('{"axes": {}, "weight": 0}', "weight: expected `float` > 0"),
        ('{"axes": {}, "weight": 1e300}', "weight: expected `float` <= 1000000000000"),
        ('{"axes": {}, "tolerance": {"max_atol": "big"}}', "line 1: tolerance: expected `bool | float`"),
        ('{"axes": {}, "inputs": {"x": {"type": "safetensors", "path": "/etc/passwd"}}}', "but get_inputs makes the"),
        ('{"axes": {}, "origin": "' + "x" * 70_000 + '"}', "line 1: .* characters; a case has at most 65536"),
        ('{"axes": {}}\n' * (MOST_CASES + 1), f"a problem has at most {MOST_CASES}"),
    ],
)
def test_a_broken_line_is_named(read, line, said):
    with pytest.raises(ProblemError, match=said):
        read(line)
