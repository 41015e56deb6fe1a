"""Submissions that cannot be read in, or of which no ModelNew can be made."""

import pytest

from evaluator.findings import Code
from evaluator.records import Status
from tests.grading.harness import limit_s, module

LATER = "class ModelNew: pass\n"
BROKEN = {
    "no ModelNew": ("import torch\n# No ModelNew.\n", Status.BUILD_ERROR, Code.NO_MODEL_NEW, None),
    "ModelNew is no class": ("def ModelNew(): pass\n", Status.BUILD_ERROR, Code.NO_MODEL_NEW, None),
    "syntax error": ("x = 1\nclass ModelNew(:\n    pass\n", Status.BUILD_ERROR, Code.IMPORT_FAILED, 2),
    "missing module": (
        f"import torch\nimport triton_kernels\n{LATER}",
        Status.BUILD_ERROR,
        Code.PACKAGE_MISSING,
        2,
    ),
    "exit at import": (f"import os\nos._exit(0)\n{LATER}", Status.RUNTIME_ERROR, Code.RUNNER_DIED, None),
    "sys.exit at import": (f"import sys\nsys.exit(0)\n{LATER}", Status.BUILD_ERROR, Code.IMPORT_FAILED, 2),
    "endless import": (f"while True: pass\n{LATER}", Status.TIMEOUT, Code.TIMED_OUT, None),
    "nested too deep": (f"x = {'(' * 100_000}1{')' * 100_000}\n{LATER}", Status.BUILD_ERROR, Code.IMPORT_FAILED, 1),
    "message that is no UTF-8": ("raise ValueError('\\udc80 \\x1b[2J')\n", Status.BUILD_ERROR, Code.IMPORT_FAILED, 1),
    "error that cannot be printed": (
        "class E(Exception):\n    def __str__(self): raise self\nraise E\n",
        Status.BUILD_ERROR,
        Code.IMPORT_FAILED,
        3,
    ),
    "another constructor": (
        module().replace("def forward", "def __init__(self, width): super().__init__()\n    def forward"),
        Status.RUNTIME_ERROR,
        Code.CONSTRUCTOR_FAILED,
        None,
    ),
    "endless constructor": (module(init=["while True: pass"]), Status.TIMEOUT, Code.TIMED_OUT, None),
}


SHOWN = ("syntax error", "endless import", "another constructor")
"""Those that go through the command line: one for each kind of screen."""


@pytest.mark.parametrize("name", SHOWN)
def test_what_cannot_be_loaded_is_shown(grade, name):
    source, status, code, line = BROKEN[name]
    grade(source, timeout_s=limit_s(status)).assert_verdict(status, code, line=line)


@pytest.mark.parametrize("name", sorted(BROKEN.keys() - set(SHOWN)))
def test_what_cannot_be_loaded_is_named(judged, name):
    source, status, code, line = BROKEN[name]
    outcome = judged(source, timeout_s=limit_s(status))
    assert (outcome.status, outcome.reason.code, outcome.reason.line) == (status, code, line)


def test_a_file_that_cannot_be_opened_is_a_usage_error(grade, tmp_path):
    run = grade(None, tmp_path / "there")
    assert (run.code, run.card) == (2, None)
    assert "there" in run.err
    assert "hint: " in run.err
