"""KernelBench's rows: JSON lines and Parquet as problems, and refused files."""

import json
import sys

import pytest

from evaluator.catalog import find_listed, find_problem, list_problems
from evaluator.errors import ProblemError

CODE = """\
import torch

n = 4


class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2


def get_inputs():
    return [torch.rand(n)]


def get_init_inputs():
    return []
"""
ROWS = [
    {"code": CODE, "level": 1, "name": "19_ReLU", "problem_id": 19},
    {"code": CODE.replace("* 2", "+ 1"), "level": 2, "name": "3_Add", "problem_id": 3},
]


def written(tmp_path, *rows):
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return file


def test_rows_are_problems(tmp_path):
    file = written(tmp_path, *ROWS)
    listing = list_problems(file)
    assert [(problem.name, problem.level) for problem in listing.problems] == [
        ("level1/19_ReLU", 1),
        ("level2/3_Add", 2),
    ]
    for name in ("level1/19_ReLU", "19_ReLU", "level1/19"):
        problem = find_problem(name, file)
        assert (problem.name, problem.source, problem.origin) == ("level1/19_ReLU", CODE, "kernelbench")
    assert find_listed("3_Add", file).title == "Add"


def test_parquet_has_the_same_rows(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "rows.parquet"
    parquet.write_table(arrow.Table.from_pylist(ROWS), file)
    assert find_problem("level2/3_Add", file).source == ROWS[1]["code"]
    file.write_bytes(b"PAR1 nothing")
    with pytest.raises(ProblemError, match="not Parquet"):
        list_problems(file)


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    file = tmp_path / "rows.parquet"
    file.write_bytes(b"")
    with pytest.raises(ProblemError, match="pyarrow") as error:
        list_problems(file)
    assert "pip install 'warpgrade[parquet]'" in str(error.value.hint)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "1 to 10000 rows"),
        ([{**ROWS[0], "sourcecode": ""}], "line 1: sourcecode: unknown key"),
        ([ROWS[0], {"level": 1, "name": "a"}], "line 2: code: this key is required"),
        ([ROWS[0], ROWS[0]], "line 2: name: level1/19_ReLU is there twice"),
        ([{**ROWS[0], "name": "../x"}], "cannot be a name"),
        ([{**ROWS[0], "level": -1}], "level"),
        ([3], "line 1"),
    ],
)
def test_other_rows_are_refused(tmp_path, rows, words):
    with pytest.raises(ProblemError) as error:
        list_problems(written(tmp_path, *rows))
    assert words in str(error.value)


def test_a_text_without_the_names_is_broken_alone(tmp_path):
    listing = list_problems(written(tmp_path, ROWS[0], {"code": "x = 1\n", "level": 3, "name": "1_No"}))
    assert [problem.name for problem in listing.problems] == ["level1/19_ReLU"]
    assert "does not define" in str(listing.broken[0])
