"""The lint's confined child: it answers, and a text that brings it down costs nothing but a finding."""

import time

import pytest

from evaluator.findings import Code
from evaluator.isolation import Starter
from evaluator.lint import ask
from evaluator.lint.ask import look_at

SUBMISSION = """
import torch
from torch import nn

class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x)
"""


@pytest.fixture(scope="module")
def starter():
    with Starter(preload=("evaluator.lint.child",)) as starter:
        yield starter


def codes(text, starter):
    return [Code(found.code) for found in look_at(text, starter).findings]


def test_a_text_is_looked_at(starter):
    (found,) = look_at(SUBMISSION, starter).findings
    assert (found.code, found.line) == (Code.LIBRARY_IN_FORWARD.value, 7)


@pytest.mark.parametrize("text", ["x = " + "-" * 1_000_000 + "1", "x" + ".a" * 500_000])
def test_a_text_that_is_nested_too_deeply_is_told(starter, text):
    assert codes(text, starter) == [Code.NOT_LOOKED_AT]


def test_a_text_that_takes_too_long_is_told(starter, monkeypatch):
    monkeypatch.setattr(ask, "_LIMIT_S", 0.5)
    slow = 'S = """\n#include <a>;\n' + "(" * 300_000 + "]" * 300_000 + '"""\n'
    started = time.monotonic()
    assert codes(slow, starter) == [Code.NOT_LOOKED_AT]
    assert time.monotonic() - started < 60


def test_a_text_that_takes_too_much_memory_is_told(starter, monkeypatch):
    monkeypatch.setattr(ask, "_LIMITS", ask.Limits(memory_bytes=64 << 20, processes=16))
    assert codes(SUBMISSION + "x = [1, 2, 3]\n" * 60_000, starter) == [Code.NOT_LOOKED_AT]


@pytest.mark.parametrize("entry", ["os:abort", "evaluator.lint.child:Look"])
def test_a_child_that_ends_without_an_answer_is_told(starter, monkeypatch, entry):
    monkeypatch.setattr(ask, "_ENTRY", entry)
    assert codes(SUBMISSION, starter) == [Code.NOT_LOOKED_AT]
