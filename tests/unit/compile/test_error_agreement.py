"""When an error of a quick step is final, and when a slower step must be asked."""

from evaluator.compile.cuda_builder import agreed, undeclared
from evaluator.protocol.frames import BuildRequest
from evaluator.records import Diagnostic


def error(message, *, line=3, source="x[i] = y;", place=9, severity="error", file="cuda.cu"):
    return Diagnostic(
        severity=severity, message=message, file=file, line=line, column=0, submission_line=place, source_line=source
    )


def test_the_same_error_at_the_same_line_is_final():
    one = error('identifier "y" is undefined')
    assert agreed([one], [one]) == [one]


def test_two_compilers_may_word_a_fault_of_grammar_differently():
    assert agreed([error("expected \u2018;\u2019 before \u2018}\u2019 token")], [error('expected a ";"')])


def test_an_unknown_name_in_other_words_may_be_pytorchs():
    assert agreed([error("\u2018nn\u2019 has not been declared")], [error('name "nn" is not a namespace')]) == []


def test_a_line_about_pytorch_proves_nothing():
    one = error('namespace "at" has no member "conv"', source="auto y = at::conv(x);")
    assert agreed([one], [one]) == []


def test_what_is_nowhere_in_the_submission_proves_nothing():
    one = error("expected a declaration", place=None)
    assert agreed([one], [one]) == []


def test_warnings_other_lines_and_other_files_do_not_agree():
    one = error("expected a declaration")
    for other in (error("expected x", line=4), error("expected x", file="main.cpp"), error("x", severity="warning")):
        assert agreed([other], [one]) == []
    assert agreed([], [one]) == []


REQUEST = BuildRequest(name="ext", cpp_sources=["int g();"], cuda_sources=["int f() {}"], functions={"f": "f"})
MISSING = error("\u2018f\u2019 was not declared in this scope", file="main.cpp", place=None)


def test_a_bound_function_that_no_source_declares_is_final_at_once():
    assert undeclared([MISSING], REQUEST) == [MISSING]


def test_another_name_or_an_include_is_not():
    assert undeclared([error("\u2018g\u2019 was not declared in this scope")], REQUEST) == []
    with_include = BuildRequest(name="ext", cpp_sources=['#include "x.h"'], functions={"f": "f"})
    assert undeclared([MISSING], with_include) == []
    assert undeclared([MISSING], BuildRequest(name="ext", cpp_sources=["int f();"], functions={"f": "f"})) == []
