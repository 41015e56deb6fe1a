"""What the judge does with a code agrees with the code's entry, and no other module lists codes."""

import ast
import functools
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from evaluator.findings import ENTRIES, Code
from evaluator.records import Status
from tests.zoo.entries import entries

TOP = Path(__file__).parents[3]
MAY_LIST_CODES = {
    "judge/runners/language_faults.py": "the emulator's own words for its errors",
    "judge/runners/runner_faults.py": "a code for each stage, and for each of CUDA's error strings",
    "lint/suspicions.py": "the names that each remark looks for, and its words",
}
"""Reasons of the modules outside `findings/` that map to three codes or more."""


@functools.cache
def modules() -> dict[str, ast.Module]:
    """Parse all modules, by path; in the first test, not in each process that collects tests."""
    paths = sorted((TOP / "evaluator").rglob("*.py"))
    return {path.relative_to(TOP / "evaluator").as_posix(): ast.parse(path.read_text()) for path in paths}


@functools.cache
def functions() -> dict[str, list[ast.FunctionDef]]:
    """Return all functions by name."""
    by_name = defaultdict(list)
    for tree in modules().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                by_name[node.name].append(node)
    return by_name


def members(node, enum):
    """Return the members of `enum` that the source names."""
    named = (each for each in ast.walk(node) if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name))
    return {enum[each.attr] for each in named if each.value.id == enum.__name__ and each.attr in enum.__members__}


def called(call: ast.Call) -> str:
    return getattr(call.func, "id", getattr(call.func, "attr", ""))


def calls(node: ast.AST, *names: str) -> Iterator[ast.Call]:
    yield from (each for each in ast.walk(node) if isinstance(each, ast.Call) and called(each) in names)


def codes_of(made: ast.expr, function: ast.FunctionDef, depth: int = 3) -> set[Code]:
    """Return the codes of the finding `made`: of its constructor, its variable, or the function that returns it."""
    match made:
        case ast.Name(id=name) if depth:
            given = [each for each in ast.walk(function) if isinstance(each, ast.Assign | ast.NamedExpr)]
            targets = [(each.targets[0] if isinstance(each, ast.Assign) else each.target, each.value) for each in given]
            values = [value for target, value in targets if isinstance(target, ast.Name) and target.id == name]
            return set().union(*(codes_of(value, function, depth - 1) for value in values))
        case ast.Call() if called(made) == "finding":
            return members(made.args[0], Code)
        case ast.Call() if depth and len(functions()[called(made)]) == 1:
            (other,) = functions()[called(made)]
            returned = [each.value for each in ast.walk(other) if isinstance(each, ast.Return) and each.value]
            return set().union(*(codes_of(value, other, depth - 1) for value in returned))
        case _:
            return set()


def verdicts() -> Iterator[tuple[str, Status, Code]]:
    """Yield the place, the status and the code of each verdict whose status and code the source names."""
    for path, tree in modules().items():
        for function in (each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)):
            for call in calls(function, "Fault", "failed"):
                for status in members(call.args[0], Status) if len(call.args) == 2 else ():
                    for code in codes_of(call.args[1], function):
                        yield f"{path}:{call.lineno}", status, code


def codes_made(folder: str, constructor: str) -> set[Code]:
    """Return the codes of the findings that modules below `folder` construct."""
    trees = [tree for path, tree in modules().items() if path.startswith(folder)]
    return {code for tree in trees for call in calls(tree, constructor) for code in members(call.args[0], Code)}


def test_each_verdict_of_the_judge_has_a_status_of_its_code():
    found = list(verdicts())
    assert len({code for _, _, code in found}) >= 25
    # The status of a missing package depends on the stage: `Fault(INCONCLUSIVE if … else verdict, missing)`.
    unfit = [each for each in found if each[1] not in ENTRIES[each[2]].statuses and each[2] != Code.PACKAGE_MISSING]
    assert unfit == []


def test_the_expected_verdicts_of_the_zoo_have_statuses_of_their_codes():
    rows = [entry.expected for folder in ("", "half/") for entry in entries(folder)]
    expected = [({row.status, row.or_status}, code) for row in rows if row.status for code in row.codes]
    assert len({code for _, code in expected}) >= 15
    assert [each for each in expected if each[0].isdisjoint(ENTRIES[Code(each[1])].statuses)] == []


def test_what_the_lint_notices_is_a_remark():
    (words,) = (node for node in modules()["lint/suspicions.py"].body if ast.unparse(node).startswith("_WORDS"))
    noticed = codes_made("lint/", "Remark") | members(words, Code)
    assert len(noticed) >= 10
    assert {code for code in noticed if ENTRIES[code].statuses} == set()


def test_no_other_module_lists_codes():
    lists = set()
    for path, tree in modules().items():
        for node in ast.walk(tree):
            match node:
                case ast.Set(elts=items) | ast.Tuple(elts=items) | ast.List(elts=items):
                    listed = [items]
                case ast.Dict(keys=keys, values=values):
                    listed = [[key for key in keys if key], values]
                case ast.BoolOp(values=values):
                    listed = [[comparison for comparison in values if isinstance(comparison, ast.Compare)]]
                case ast.Match(cases=cases):
                    listed = [[case.pattern for case in cases]]
                case _:
                    continue
            if any(len(set().union(*(members(item, Code) for item in items))) >= 3 for items in listed):
                lists.add(path)
    assert {path for path in lists if not path.startswith("findings/")} == MAY_LIST_CODES.keys()
