"""Reading submissions: what is taken, what is refused, and that hostile text costs no more than its length."""

import hashlib
import io
import os
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.errors import ExitCode, SubmissionUnreadable
from evaluator.findings import Code
from evaluator.records import Finding
from evaluator.submission.read import MAX_ANSWER_BYTES, MAX_CODE_BYTES, Submission, read_submission

ANSWERS = Path(__file__).parents[2] / "data" / "answers"
MODEL = "class ModelNew:\n    pass\n"


@pytest.fixture
def written(tmp_path):
    """Write bytes or text to a file of the name that is given."""

    def write(content, name="answer.txt"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def accepted(path, stdin=None) -> Submission:
    result = read_submission(path, stdin)
    assert isinstance(result, Submission), result
    return result


def refused(path, stdin=None) -> Finding:
    result = read_submission(path, stdin)
    assert isinstance(result, Finding), result
    return result


def codes(submission: Submission) -> list[str]:
    return [each.code for each in submission.findings]


class TestPython:
    def test_a_py_file_is_taken_as_it_is_line_ends_and_fences_included(self, written):
        text = '"""\n```python\nclass ModelNew: 1\n```\n"""\r\nx = 1'
        submission = accepted(written(text, "my.kernel.py"))
        assert submission.source == text
        assert submission.name == "my.kernel"
        assert submission.origin.endswith("/my.kernel.py")
        assert submission.sha256 == hashlib.sha256(text.encode()).hexdigest()
        assert (submission.extracted_from_answer, submission.line_offset, submission.findings) == (False, 0, ())

    def test_a_byte_order_mark_is_dropped(self, written):
        assert accepted(written(b"\xef\xbb\xbfx = 1\n", "a.py")).source == "x = 1\n"

    def test_the_largest_size_is_taken_and_one_byte_more_is_not(self, written):
        assert len(accepted(written(b"#" * MAX_CODE_BYTES, "a.py")).source) == MAX_CODE_BYTES
        finding = refused(written(b"#" * (MAX_CODE_BYTES + 1), "b.py"))
        assert finding.code == Code.TOO_LARGE
        assert "1 MiB" in finding.message

    def test_a_file_name_that_is_not_utf8_survives_json(self, tmp_path):
        path = tmp_path / os.fsdecode(b"bad\xff.py")
        path.write_text("x = 1\n")
        assert b"bad" in msgspec.json.encode(accepted(path))


class TestNotText:
    @pytest.mark.parametrize("name", ["a.py", "a.txt"])
    def test_a_nul_byte_is_named_with_its_line(self, written, name):
        finding = refused(written(b"x = 1\ny = '\0'\n", name))
        assert (finding.code, finding.line) == (Code.NOT_TEXT, 2)

    def test_bytes_that_are_not_utf8_are_named_with_their_line(self, written):
        finding = refused(written(b"x = 1\n\ny = '\xe9'\n", "a.py"))
        assert (finding.code, finding.line) == (Code.NOT_TEXT, 3)

    def test_utf16_is_called_by_its_name(self, written):
        finding = refused(written("x = 1\n".encode("utf-16"), "a.py"))
        assert finding.code == Code.NOT_TEXT
        assert "UTF-16" in finding.message


class TestUnreadable:
    def test_a_missing_file(self, tmp_path):
        with pytest.raises(SubmissionUnreadable, match="No such file") as caught:
            read_submission(tmp_path / "none.py")
        assert caught.value.hint
        assert caught.value.exit_code is ExitCode.USAGE

    def test_a_folder(self, tmp_path):
        with pytest.raises(SubmissionUnreadable, match="is a folder"):
            read_submission(tmp_path)

    def test_a_name_with_a_nul(self):
        with pytest.raises(SubmissionUnreadable, match="null byte"):
            read_submission(Path("a\0b.py"))

    def test_standard_input_that_is_closed(self):
        stream = io.BytesIO()
        stream.close()
        with pytest.raises(SubmissionUnreadable, match="closed"):
            read_submission("-", stream)


class TestFences:
    @pytest.mark.parametrize(
        "answer",
        [
            f"```python\n{MODEL}```",
            f"```\n{MODEL}```\n",
            f"~~~\n{MODEL}~~~\n",
            f"~~~ `py` ~~~\n{MODEL}~~~\n",
            f"``` {{.python .numberLines}}\n{MODEL}```   \n",
            f"`````python\n{MODEL}``````\n",
            f"  ```py\n{MODEL}   ```\n",
        ],
        ids=["backticks", "no info", "tildes", "tilde info", "attributes", "longer", "indented"],
    )
    def test_every_kind_of_fence_gives_the_code_between(self, written, answer):
        submission = accepted(written(answer))
        assert submission.source == MODEL
        assert submission.extracted_from_answer
        assert submission.line_offset == 1
        assert submission.findings == ()

    def test_the_indentation_of_the_fence_is_taken_off_each_line(self, written):
        indented = "".join(f"    {line}" for line in MODEL.splitlines(keepends=True))
        submission = accepted(written(f"1. So:\n\n    ```python\n{indented}\n  x = 1\n    ```\n"))
        assert submission.source == MODEL + "\nx = 1\n"
        assert submission.line_offset == 3

    def test_code_that_is_less_indented_than_its_fence_keeps_its_own_indentation(self, written):
        assert accepted(written(f"    ```\n\n{MODEL}    ```\n")).source == f"\n{MODEL}"
        code = " if 1:\n     x = 1\n class ModelNew: 1\n"
        assert accepted(written(f"   ```\n{code}   ```\n")).source == "if 1:\n    x = 1\nclass ModelNew: 1\n"

    @pytest.mark.parametrize(
        "inner",
        ["~~~\n", "```` \nx\n````\n", "``` not a closing fence\n", "    ```\n", "# As Markdown: ```python\n"],
        ids=["other character", "nested", "text after it", "too far in", "behind prose"],
    )
    def test_what_does_not_close_a_block_is_content(self, written, inner):
        outer = "`````" if inner.startswith("````") else "```"
        code = f"'''\n{inner}'''\n{MODEL}"
        assert accepted(written(f"{outer}python\n{code}{outer}\n")).source == code

    def test_backticks_in_a_line_of_prose_open_nothing(self, written):
        assert accepted(written(f"```max(x, 0)``` is all\n\n```\n{MODEL}```\n")).source == MODEL

    @pytest.mark.parametrize(
        "line", ["ModelNew = Fast", "ModelNew=Fast", "class ModelNew(nn.Module):", "class  ModelNew:"]
    )
    def test_these_lines_define_modelnew(self, written, line):
        assert accepted(written(f"```\n{line}\n```\n")).source == f"{line}\n"

    @pytest.mark.parametrize(
        "line",
        ["  class ModelNew:", "class ModelNewer:", "ModelNew == 1", "# class ModelNew:", "ModelNew()", "class Models:"],
    )
    def test_these_lines_do_not(self, written, line):
        assert refused(written(f"```\n{line}\n```\n")).code in (Code.NO_CODE, Code.WRONG_FORM)


class TestChoice:
    def test_the_last_block_that_defines_modelnew_wins_and_the_others_are_named(self, written):
        first, last = f"{MODEL}a = 1\n", f"{MODEL}b = 2\n"
        submission = accepted(written(f"```\n{first}```\n\n```\n{last}```\n\n```sh\nls\n```\n"))
        assert submission.source == last
        assert codes(submission) == [Code.LEFT_OUT]
        assert submission.findings[0].line == submission.line_offset + 1 == 8
        assert submission.findings[0].message == (
            "the grade uses the block from line 8; left out: the block from line 2, the block from line 14 (sh)"
        )

    @pytest.mark.parametrize("between", ["</think>\n", "</thinking>\n", "Let me start again.\n"])
    def test_a_draft_that_was_never_closed_does_not_swallow_the_answer(self, written, between):
        submission = accepted(written(f"```python\n{MODEL}dra\n{between}\n```python\n{MODEL}```\n"))
        assert submission.source == MODEL

    def test_the_end_of_the_thoughts_ends_a_block_even_before_a_bare_fence(self, written):
        assert accepted(written(f"```\ndraft\n</think>\n```\n{MODEL}```\n")).source == MODEL

    @pytest.mark.parametrize(
        "text",
        [
            'So:\n```python\nimport torch\nS = r"code\n__global__ void k() {',
            "```\nx = 1\n```\nAnd now:\n```python\nimport to",
            "<think>\nFirst, ModelNew has to",
            "<think>\nThen:\n```python\nx",
        ],
        ids=["before ModelNew", "second block", "thoughts", "draft among thoughts"],
    )
    @pytest.mark.parametrize("name", ["a.md", "a.txt", "-"])
    def test_an_answer_cut_off_before_modelnew_says_so(self, written, text, name):
        finding = refused("-", io.BytesIO(text.encode())) if name == "-" else refused(written(text, name))
        assert (finding.code, finding.line) == (Code.CUT_OFF, text.count("\n") + 1)

    def test_an_answer_cut_off_in_a_later_block_says_so(self, written):
        submission = accepted(written(f"```\n{MODEL}```\n```\n{MODEL}"))
        assert submission.source == MODEL
        assert codes(submission) == [Code.LEFT_OUT]
        assert submission.findings[0].message.endswith("left out: the block from line 6 (never closed)")

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "No code today.\n",
            "I cannot write ModelNew.\n",
            "# Plan\n\n1. from the start\n2. import it\n",
            "```\nx = 1\n```\n",
            "<think>hm</think>\nimport nothing of mine.\n",
        ],
    )
    @pytest.mark.parametrize("name", ["a.md", "a.txt", "a", "-"])
    def test_prose_is_no_code_whatever_it_is_called(self, written, text, name):
        finding = refused("-", io.BytesIO(text.encode())) if name == "-" else refused(written(text, name))
        assert finding.code == Code.NO_CODE

    @pytest.mark.parametrize(
        "text",
        [
            MODEL,
            "import torch\n",
            "from kernels import *\r\n",
            "exec(TEXT)",
            "@decorator\nclass ModelNew: 1",
        ],
        ids=["model", "import", "import all", "exec", "decorated"],
    )
    @pytest.mark.parametrize("name", ["a.py", "a.md", "a.txt", "a", "-"])
    def test_python_without_a_fence_is_python_whatever_it_is_called(self, written, text, name):
        found = accepted("-", io.BytesIO(text.encode())) if name == "-" else accepted(written(text, name))
        assert (found.source, found.extracted_from_answer, found.line_offset) == (text, False, 0)


class TestStandardInput:
    def test_python_is_taken_whole(self):
        submission = accepted("-", io.BytesIO(MODEL.encode()))
        assert (submission.source, submission.name, submission.origin) == (
            MODEL,
            f"stdin-{submission.sha256[:12]}",
            "stdin",
        )
        assert not submission.extracted_from_answer

    def test_the_process_s_own_standard_input_is_the_default(self, monkeypatch):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(MODEL.encode())))
        assert accepted("-").source == MODEL


class TestLimits:
    def test_no_more_is_read_than_shows_that_there_is_too_much(self):
        stream = io.BytesIO(b"a" * (50 << 20))
        finding = refused("-", stream)
        assert finding.code == Code.TOO_LARGE
        assert "4 MiB" in finding.message
        assert stream.tell() == MAX_ANSWER_BYTES + 1

    def test_a_device_without_end_is_refused(self):
        assert refused(Path("/dev/zero")).code == Code.TOO_LARGE

    def test_code_over_the_limit_inside_an_answer_within_its_own(self, written):
        finding = refused(written(f"```\n{MODEL}{'#' * MAX_CODE_BYTES}\n```\n"))
        assert finding.code == Code.TOO_LARGE
        assert finding.details == {"limit_bytes": MAX_CODE_BYTES}

    @pytest.mark.parametrize(
        "unit",
        [
            "`",
            "~",
            " ",
            "\n",
            "```\n",
            "```py\n",
            "~~~`\n",
            "</think>\n",
            "```\nclass ModelNew\n```\n",
            "`` `",
            "```\nModelNew",
            "<think>\n",
            "```\n<answer>\n</think>\n",
            "```\nclass Net:\n```\n",
        ],
    )
    @pytest.mark.slow
    def test_a_quarter_of_a_mebibyte_of_anything_costs_linear_time(self, written, unit):
        path = written((unit * (MAX_ANSWER_BYTES // 16 // len(unit))).encode())
        start = time.process_time()
        read_submission(path)
        # Quadratic time would take many minutes; the generous bound is for slow machines.
        assert time.process_time() - start < 50

    @pytest.mark.parametrize(
        "rows",
        [
            [f"{'`' * n}\n" for n in range(3, 2800)],
            [f"{' ' * n}```py\nclass ModelNew\n" for n in range(2800)],
            [f"{' ' * 500_000}```\n", f"{' ' * 500_000}class ModelNew\n```\n"],
            [f"{' ' * 20_000}```\n", *["a\n"] * 500_000, "class ModelNew\n```\n"],
            [f"```\nModelNew{' ' * 1_000_000}\n```\n"],
            [f"```\nclass{' ' * 1_000_000}\n```\n"],
        ],
        ids=["growing", "indents", "wide", "wide and long", "name and space", "class and space"],
    )
    def test_shapes_made_to_be_slow_are_not(self, written, rows):
        path = written("".join(rows))
        start = time.process_time()
        read_submission(path)
        assert time.process_time() - start < 200


@given(
    st.lists(st.sampled_from(["```", "```py", "````", "~~~", "  ```", MODEL.rstrip(), "x", "</think>", "", "\t~~~"]))
)
def test_code_is_always_lines_of_the_answer_from_where_it_says(lines):
    text = "\n".join(lines)
    result = read_submission("-", io.BytesIO(text.encode()))
    if isinstance(result, Submission):
        source = result.source.split("\n")
        there = text.split("\n")[result.line_offset :]
        for found, expected in zip(source[:-1], there, strict=False):
            assert expected.endswith(found)
            assert expected.strip() == found.strip()
        assert result.extracted_from_answer <= ("class ModelNew" in result.source)


@pytest.mark.parametrize(
    ("name", "first_line", "holds", "several"),
    [
        ("relu_forward.txt", "import torch", "clamp_below<<<", False),
        ("relu_autograd.md", "import torch", "class Relu(torch.autograd.Function)", True),
        ("relu_float4_wrong_index.txt", "import torch", "int place = 4 * quad;", True),
        ("relu_torch_library.md", "from model import Model", "TORCH_LIBRARY(answer_relu", True),
        (
            "linear_relu_divide.md",
            '"""A linear layer, then ReLU and a division in one kernel.',
            "ModelNew = Linear",
            False,
        ),
    ],
)
def test_our_own_answers(name, first_line, holds, several):
    path = ANSWERS / name
    submission = accepted(path)
    assert submission.source.split("\n")[0] == first_line
    assert path.read_text().split("\n")[submission.line_offset].strip() == first_line
    assert holds in submission.source
    assert codes(submission) == ([Code.LEFT_OUT] if several else [])
    compile(submission.source, name, "exec")


def seeds() -> list[Path]:
    folder = os.environ.get("WARPGRADE_SEEDS")
    return sorted(Path(folder).glob("*.txt")) if folder else []


@pytest.mark.skipif(not seeds(), reason="WARPGRADE_SEEDS names no folder of real answers")
def test_real_answers():
    for path in seeds():
        submission = accepted(path)
        assert submission.extracted_from_answer
        compile(submission.source, str(path), "exec")
        assert submission.source.split("\n")[0] == path.read_text().split("\n")[submission.line_offset]
        assert "class ModelNew" in submission.source
        assert "```" not in submission.source
