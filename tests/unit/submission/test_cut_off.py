"""Which syntax errors come of a text that was cut off: each by what this Python itself says of the text."""

import pytest

from evaluator.submission.forms import is_cut_off


def said_of(text):
    with pytest.raises(SyntaxError) as caught:
        compile(text, "submission.py", "exec")
    return str(caught.value.msg), caught.value.lineno


WHOLE = '''import torch
from torch.utils.cpp_extension import load_inline
S = """
__global__ void k(float* x) {
    x[threadIdx.x] = 1;
    return;
}
"""
ext = load_inline(
    name="e", cuda_sources=S,
    functions=["f"],
)
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return ext.f(
            x, 1)
'''


@pytest.mark.parametrize(
    "ending",
    ["x[threadIdx", "return;", "cuda_sources=S,", "functions=[", "def forward(self, x):", "forward(self", "x, 1", 'e"'],
)
def test_a_text_that_ends_in_the_middle_is(ending):
    text = WHOLE[: WHOLE.index(ending) + len(ending)]
    assert is_cut_off(text, *said_of(text))
    assert is_cut_off(text + "\n\n", *said_of(text + "\n\n"))


@pytest.mark.parametrize("text", ["x = 1 +", "from torch", "y = 'abc", "class", "try:\n    x = 1", "if x:"])
def test_so_is_a_statement_that_is_not_finished(text):
    assert is_cut_off(f"a = 1\n{text}", *said_of(f"a = 1\n{text}"))


@pytest.mark.parametrize(
    "text",
    [
        WHOLE.replace('}\n"""', "}\n"),
        WHOLE.replace('["f"],\n)', '["f"],'),
        WHOLE.replace("x):", "x:"),
        WHOLE + "Here is why it is fast.",
        WHOLE.replace("import torch\n", "import torch 1\n"),
        "def f():\nx = 1\n",
        "y = 'abc\nz = 1\n",
    ],
    ids=["quotes forgotten", "bracket forgotten", "bracket in forward", "prose", "nonsense", "no block", "quote"],
)
def test_a_mistake_before_the_end_is_not(text):
    assert not is_cut_off(text, *said_of(text))


def test_without_a_line_nothing_is_said():
    assert not is_cut_off("f(", "'(' was never closed", None)
