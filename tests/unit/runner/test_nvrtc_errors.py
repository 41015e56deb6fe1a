"""Compile errors of NVRTC in a runner: recognised by the compiler's own frame, with the compiled text."""

import importlib

import pytest

from evaluator.protocol.frames.bounds import MOST_KERNEL_TEXT
from evaluator.runner.nvrtc import refused_source
from evaluator.runner.submission_module import describe

LOG = 'relu.cu(2): error: identifier "y" is undefined'
SOURCE = "__global__ void relu() {\n  y = 1;\n}"
COMPILER = """
def _nvrtc_compile(kernel_source, kernel_name):
    raise RuntimeError({said!r})
"""


CUPY_LOG = """/tmp/tmpw3/7f1c.cubin.cu(2): error: identifier "y" is undefined
    y = 1;
    ^

1 error detected in the compilation of "/tmp/tmpw3/7f1c.cubin.cu".
"""
"""Of CuPy 14.2.0 with NVRTC 13.5."""
CUPY = """
class CompileException(Exception):
    pass

class _NVRTCProgram:
    def __init__(self, src, name):
        self.src, self.name = src, name
    def compile(self, kind):
        raise kind(SAID)
"""


def raised_by_cupy(kind="CompileException", file="/site/cupy/cuda/compiler.py", name="/tmp/tmpw3/7f1c.cubin.cu"):
    scope = {"SAID": CUPY_LOG, "ValueError": ValueError}
    exec(compile(CUPY, file, "exec"), scope)
    with pytest.raises(Exception, match="undefined") as caught:
        scope["_NVRTCProgram"](SOURCE, name).compile(scope[kind])
    return caught.value


def test_cupys_kernel_has_reason_and_text():
    refused = refused_source(raised_by_cupy())
    assert (refused.kernel, refused.text) == ("", SOURCE)
    assert refused.reason == CUPY_LOG.replace("/tmp/tmpw3/7f1c.cubin.cu", ".cu")
    assert refused_source(raised_by_cupy(name="")).reason == CUPY_LOG


@pytest.mark.parametrize("changes", [{"kind": "ValueError"}, {"file": "/tmp/submission.py"}])
def test_any_other_error_near_cupy_is_no_refused_kernel(changes):
    assert refused_source(raised_by_cupy(**changes)) is None


def raised(said=f"Kernel compilation failed:\n{LOG}\n", source=SOURCE, file="/site/torch/cuda/_utils.py"):
    scope = {}
    exec(compile(COMPILER.format(said=said), file, "exec"), scope)
    with pytest.raises(RuntimeError) as caught:
        scope["_nvrtc_compile"](source, "relu")
    return caught.value


def test_a_refused_kernel_has_reason_and_text():
    refused = refused_source(raised())
    assert (refused.kernel, refused.reason, refused.text) == ("relu", LOG, SOURCE)
    assert (refused.line, refused.column) == (0, 0)
    assert describe(raised()).refused == refused


def test_a_long_text_is_cut_and_half_a_character_is_replaced():
    assert len(refused_source(raised(source="x" * (1 << 20))).text) == MOST_KERNEL_TEXT
    assert refused_source(raised(source="\ud800")).text == "?"


@pytest.mark.parametrize(
    "changes", [{"said": "CUDA error: no device"}, {"file": "/tmp/submission.py"}], ids=["other error", "other file"]
)
def test_any_other_error_is_no_refused_kernel(changes):
    assert refused_source(raised(**changes)) is None


def test_an_error_that_cannot_be_printed_is_no_refused_kernel():
    class Unprintable(Exception):
        def __str__(self):
            raise ValueError

    assert refused_source(Unprintable()) is None


def test_a_failed_import_is_found_behind_the_exception():
    def needs_a_language():
        try:
            importlib.import_module("no_such_language.kernels")
        except ImportError:
            raise RuntimeError("this submission needs a GPU") from None

    with pytest.raises(RuntimeError) as caught:
        needs_a_language()
    assert describe(caught.value).missing == "no_such_language"
    assert describe(raised()).missing == ""


def test_a_module_may_have_any_object_for_a_name():
    class Unprintable(str):
        __slots__ = ()

        def __format__(self, _):
            raise ValueError

    scope = {"__name__": Unprintable("x")}
    exec("def f():\n    raise RuntimeError", scope)
    with pytest.raises(RuntimeError) as caught:
        scope["f"]()
    assert describe(caught.value).functions[-1] == ".f"


def test_an_exception_may_have_any_attributes():
    class Hostile(ValueError):
        @property
        def __cause__(self):
            raise RuntimeError

    said = describe(Hostile("x"))
    assert (said.message, said.functions, said.missing) == ("x", [], "")


def test_a_failure_names_the_functions_on_its_stack():
    functions = describe(raised()).functions
    assert [name.rpartition(".")[2] for name in functions] == ["raised", "_nvrtc_compile"]
    assert functions[0] == f"{__name__}.raised"
