"""Quotations: special tokens of chat templates are broken, code stays readable."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.report.layout.quotation import MARK, plain, quoted

TOKENS = [
    *("<|im_start|>", "<|eot_id|>", "<\uff5cUser\uff5c>", "<s>", "</s>", "<bos>", "<start_of_turn>", "<end_of_turn>"),
    *("<think>", "</think>", "<tool_call>", "</tool_response>", "<<SYS>>", "<</SYS>>", "[INST]", "[/INST]", "[MASK]"),
    *("<fim_prefix>", "<extra_id_0>", "<unused5>", "<0x0A>", "</function_results>", "<image>", "##[group]"),
]


@pytest.mark.parametrize("token", TOKENS)
def test_a_special_token_is_broken(token):
    for text in (token, f"a{token}b", token * 3, f"<{token}>", f"[{token}]", token[0] + token):
        assert token not in plain(text)
        assert plain(text).replace(" ", "") == text


@pytest.mark.parametrize(
    "line",
    [
        "#include <torch/extension.h>",
        "at::Tensor y = x.to(at::kFloat); std::vector<float> v; a[idx] = b[BLOCK] << 2;",
        "kernel<<<grid, block>>>(x.data_ptr<float>(), n); if (a < b || c > d) x ##y;",
    ],
)
def test_code_stays_as_it_is(line):
    assert plain(line) == line


@given(st.text(st.sampled_from("<|>/[]INST_s#\n\r\u2028 \uff5c\x1b[")), st.integers(1, 5), st.booleans())
def test_every_line_is_marked_or_counts_lines(text, most, last):
    lines = quoted(text, most, last=last)
    assert len(lines) <= most + 1
    for line in lines:
        assert line.startswith(MARK) or re.fullmatch(r"\(\d+ (more|earlier) lines?\)", line)
        assert len(line.splitlines()) == 1
        assert not any(token in line for token in ("<|", "|>", "<s>", "[INST]", "##["))
