"""How a runner reads a submission in: the text that the judge looked at runs, whatever encoding it declares."""

import copy
import dataclasses
import inspect
import linecache
import pickle
import sys

import pytest
import torch

from evaluator.runner import submission_module

HIDDEN = """# -*- coding: utf-7 -*-
class ModelNew:
    kind = "as written" # +AAo-    kind = "as decoded"
"""
LATIN = """# -*- coding: latin-1 -*-
class ModelNew:
    kind = "\u00e4\u20ac"
"""
ORDINARY = '''"""A submission."""
from __future__ import annotations
import dataclasses
import torch
from model import Model

@dataclasses.dataclass
class Shape:
    rows: int

@torch.jit.script
def twice(x: torch.Tensor) -> torch.Tensor:
    return 2 * x

class ModelNew(Model):
    shape = Shape(3)

    def forward(self, x):
        return twice(x)

    def fail(self):
        raise ValueError("here")
'''
MODEL = "class Model: pass\n"

SCRIPTED = pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")


@pytest.fixture
def read_in(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "model", raising=False)
    monkeypatch.setattr(linecache, "cache", dict(linecache.cache))
    yield lambda text: submission_module.read_in(tmp_path, text, MODEL)
    for name in ("submission", "model"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(("text", "kind"), [(HIDDEN, "as written"), (LATIN, "\u00e4\u20ac")], ids=["utf-7", "latin-1"])
def test_the_text_that_the_judge_read_runs_and_is_what_inspect_gives(read_in, text, kind):
    model_new = read_in(text)
    assert model_new.kind == kind
    assert inspect.getsource(sys.modules["submission"]) == text
    assert inspect.getsource(model_new) == text.partition("\n")[2]


def test_nobody_reads_another_text_from_the_file_either(read_in):
    read_in(HIDDEN)
    path = sys.modules["submission"].__file__
    linecache.clearcache()
    assert "as decoded" not in "".join(linecache.getlines(path))


def test_an_encoding_that_does_not_exist_is_a_comment(read_in):
    assert read_in("# coding: no-such\nclass ModelNew: pass\n").__name__ == "ModelNew"


@SCRIPTED
def test_what_honest_submissions_need_of_their_module(read_in, tmp_path):
    model_new = read_in(ORDINARY)
    assert torch.equal(model_new().forward(torch.ones(2)), torch.full((2,), 2.0))
    assert model_new.__module__ == "submission"
    shape = model_new.shape
    assert pickle.loads(pickle.dumps(shape)) == copy.deepcopy(shape) == dataclasses.replace(shape)
    assert sys.modules["submission"].__doc__ == "A submission."
    assert (tmp_path / submission_module.SUBMISSION_FILE).read_text() == ORDINARY


@SCRIPTED
def test_an_error_has_the_line_of_the_text(read_in, tmp_path):
    model_new = read_in(ORDINARY)
    with pytest.raises(ValueError, match="here") as raised:
        model_new().fail()
    line = ORDINARY[: ORDINARY.index("raise ValueError")].count("\n") + 1
    assert submission_module.describe(raised.value).lines == [(line, 'raise ValueError("here")')]


def test_a_syntax_error_has_the_line_of_the_text(read_in, tmp_path):
    with pytest.raises(SyntaxError) as raised:
        read_in("# coding: utf-7\nx = (\n")
    assert submission_module.describe(raised.value).lines == [(2, "x = (")]


def test_ends_of_lines_are_as_python_reads_them(read_in):
    model_new = read_in("class ModelNew:\r\n    kind = 1\r\n    other = 2")
    assert (model_new.kind, model_new.other) == (1, 2)
    assert inspect.getsource(model_new) == "class ModelNew:\n    kind = 1\n    other = 2\n"
