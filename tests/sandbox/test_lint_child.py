"""The lint's confined child: it answers, and a text that brings it down costs nothing but a finding."""

import pytest

from evaluator.findings import Code
from evaluator.lint import messages
from evaluator.lint.messages import ANALYSIS, look_at
from evaluator.sandbox import ForkServer

SUBMISSION = """
import torch
from torch import nn

class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x)
"""


@pytest.fixture(scope="module")
def fork_server():
    with ForkServer(preload=("evaluator.lint.lint",)) as fork_server:
        yield fork_server


def codes(text, fork_server):
    return [Code(found.code) for found in look_at(text, ["ModelNew"], fork_server.spawn).findings]


def test_a_text_is_looked_at(fork_server):
    (found,) = look_at(SUBMISSION, ["ModelNew"], fork_server.spawn).findings
    assert (found.code, found.line) == (Code.LIBRARY_IN_FORWARD.value, 7)


@pytest.mark.parametrize("text", ["x = " + "-" * 1_000_000 + "1", "x" + ".a" * 500_000])
def test_a_text_that_is_nested_too_deeply_is_told(fork_server, text):
    assert codes(text, fork_server) == [Code.NOT_LOOKED_AT]


def test_a_text_that_takes_too_long_is_told(fork_server, monkeypatch):
    monkeypatch.setattr(messages, "ANALYSIS", ANALYSIS._replace(limit_s=0.1))
    slow = 'S = """\n#include <a>;\n' + "(" * 300_000 + "]" * 300_000 + '"""\n'
    assert codes(slow, fork_server) == [Code.NOT_LOOKED_AT]


def test_a_child_that_ends_without_an_answer_is_told(fork_server, monkeypatch):
    monkeypatch.setattr(messages, "ANALYSIS", ANALYSIS._replace(entry="os:abort"))
    assert codes(SUBMISSION, fork_server) == [Code.NOT_LOOKED_AT]
