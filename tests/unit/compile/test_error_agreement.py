"""When an error of a quick step is final, and when a slower step must be asked."""

import pytest

from evaluator.compile.binding_errors import undeclared
from evaluator.compile.cuda_builder import agreed
from evaluator.protocol.frames import BuildRequest
from tests.unit.compile.tool_results import error


def own(message, **changes):
    """Return an error in a line of the submission."""
    usual = {"file": "cuda.cu", "line": 3, "submission_line": 9, "source_line": "x[i] = y;"}
    return error(message, **(usual | changes))


UNDEFINED, OF_PYTORCH = 'identifier "y" is undefined', 'namespace "at" has no member "conv"'


@pytest.mark.parametrize(
    ("earlier", "later", "agree"),
    [
        (own(UNDEFINED), own(UNDEFINED), True),
        (own("expected \u2018;\u2019 before \u2018}\u2019 token"), own('expected a ";"'), True),
        (own("\u2018nn\u2019 has not been declared"), own('name "nn" is not a namespace'), False),
        (own(OF_PYTORCH, source_line="at::conv(x);"), own(OF_PYTORCH, source_line="at::conv(x);"), False),
        (
            own("expected a declaration", submission_line=None),
            own("expected a declaration", submission_line=None),
            False,
        ),
        (own("expected x", line=4), own("expected a declaration"), False),
        (own("expected x", file="main.cpp"), own("expected a declaration"), False),
        (own("x", severity="warning"), own("expected a declaration"), False),
    ],
    ids=[
        *("the same words", "a fault of grammar in other words", "an unknown name in other words"),
        *("a line about PyTorch", "no line of the submission", "other lines", "other files", "a warning"),
    ],
)
def test_an_error_that_two_steps_agree_on_is_final(earlier, later, agree):
    assert agreed([earlier], [later]) == ([later] if agree else [])


MISSING = own("\u2018f\u2019 was not declared in this scope", file="main.cpp", submission_line=None)


@pytest.mark.parametrize(
    ("found", "cpp", "is_final"),
    [
        (MISSING, "int g();", True),
        (own("\u2018g\u2019 was not declared in this scope"), "int g();", False),
        (MISSING, '#include "x.h"', False),
        (MISSING, "int f();", False),
    ],
)
def test_a_bound_function_that_no_source_declares_is_final_at_once(found, cpp, is_final):
    request = BuildRequest(name="ext", cpp_sources=[cpp], cuda_sources=["int f() {}"], functions={"f": "f"})
    assert undeclared([found], request) == ([found] if is_final else [])
