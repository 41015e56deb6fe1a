"""When an error of a quick step is final, and when a slower step must be asked."""

import pytest

from evaluator.compile.binding_errors import undeclared
from evaluator.compile.cuda_builder import agreed
from evaluator.protocol.frames import BuildRequest
from evaluator.records import Diagnostic


def error(message, *, line=3, source="x[i] = y;", place=9, severity="error", file="cuda.cu"):
    return Diagnostic(
        severity=severity, message=message, file=file, line=line, column=0, submission_line=place, source_line=source
    )


UNDEFINED, OF_PYTORCH = 'identifier "y" is undefined', 'namespace "at" has no member "conv"'


@pytest.mark.parametrize(
    ("earlier", "later", "agree"),
    [
        (error(UNDEFINED), error(UNDEFINED), True),
        (error("expected \u2018;\u2019 before \u2018}\u2019 token"), error('expected a ";"'), True),
        (error("\u2018nn\u2019 has not been declared"), error('name "nn" is not a namespace'), False),
        (error(OF_PYTORCH, source="at::conv(x);"), error(OF_PYTORCH, source="at::conv(x);"), False),
        (error("expected a declaration", place=None), error("expected a declaration", place=None), False),
        (error("expected x", line=4), error("expected a declaration"), False),
        (error("expected x", file="main.cpp"), error("expected a declaration"), False),
        (error("x", severity="warning"), error("expected a declaration"), False),
    ],
    ids=[
        *("the same words", "a fault of grammar in other words", "an unknown name in other words"),
        *("a line about PyTorch", "no line of the submission", "other lines", "other files", "a warning"),
    ],
)
def test_an_error_that_two_steps_agree_on_is_final(earlier, later, agree):
    assert agreed([earlier], [later]) == ([later] if agree else [])


MISSING = error("\u2018f\u2019 was not declared in this scope", file="main.cpp", place=None)


@pytest.mark.parametrize(
    ("found", "cpp", "is_final"),
    [
        (MISSING, "int g();", True),
        (error("\u2018g\u2019 was not declared in this scope"), "int g();", False),
        (MISSING, '#include "x.h"', False),
        (MISSING, "int f();", False),
    ],
)
def test_a_bound_function_that_no_source_declares_is_final_at_once(found, cpp, is_final):
    request = BuildRequest(name="ext", cpp_sources=[cpp], cuda_sources=["int f() {}"], functions={"f": "f"})
    assert undeclared([found], request) == ([found] if is_final else [])
