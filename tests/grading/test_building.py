"""Extensions: what the compiler refuses, what is not given to it, and what a submission makes of a failure."""

import pytest

from evaluator.findings import Code
from evaluator.records import Status
from tests.grading.harness import module
from tests.grading.judged import verdict

BROKEN_CPP = '''\
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

source = """
torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty_like(z);
    return torch::relu_out(y, x);
}
"""

%s


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.forward(x) if extension else torch.relu(x)
'''
BUILD = 'extension = load_inline(name="mine", cpp_sources=source, functions=["forward"])'
FALLBACK = f"for _ in range(3):\n    try:\n        {BUILD}\n    except Exception:\n        extension = None"


@pytest.mark.slow
def test_a_compile_error_is_shown_at_the_submissions_own_line(grade):
    """Without PyTorch's headers, whose compilation takes most of the time; `long` tests have them."""
    source = BROKEN_CPP.replace("torch::Tensor forward(torch::Tensor x)", "int forward(int x)")
    source = source.replace("torch::empty_like(z)", "z").replace("torch::relu_out(y, x)", "x")
    run = grade(source % BUILD.replace('functions=["forward"]', "no_implicit_headers=True"))
    card = run.assert_verdict(Status.BUILD_ERROR, Code.COMPILE_FAILED, line=7)
    assert "auto y = z;" in run.out
    assert any(line.strip().strip("│ ") == "^" or line.rstrip().endswith("^") for line in run.out.splitlines())
    (unit,) = card.build.units
    assert not unit.ok
    assert unit.diagnostics[0].submission_line == 7


@pytest.mark.long
@pytest.mark.slow
def test_a_fallback_is_graded_and_the_failed_build_is_told(grade):
    run = grade(BROKEN_CPP % FALLBACK, "--json")
    card = run.assert_verdict(Status.CORRECT)
    assert run.findings.count(Code.FAILED_BUILD_IGNORED) == 1
    assert not card.build.ok
    assert card.build.units[0].wall_s > 0
    # Compiled once, although the submission asks in every stage.
    assert card.stages_s["check"] < card.build.units[0].wall_s


@pytest.mark.slow
def test_a_compilation_without_end_is_stopped(grade):
    source = (
        "template <int n, int m> struct A { enum { v = A<n - 1, m>::v + A<n - 1, m + (1 << n)>::v }; };\n"
        "template <int m> struct A<0, m> { enum { v = m }; };\n"
        "int forward() { return A<28, 0>::v; }\n"
    )
    run = grade(
        module(
            "from torch.utils.cpp_extension import load_inline",
            f"load_inline('mine', {source!r}, functions=['forward'], no_implicit_headers=True)",
        ),
        "--build-timeout",
        "3",
    )
    card = run.assert_verdict(Status.TIMEOUT, Code.COMPILER_TIMED_OUT)
    assert card.build.units[0].wall_s < 60  # The compiler was stopped; alone it takes hours.


def test_a_flag_that_is_not_allowed_is_refused(grade):
    flag = "-fplugin=/tmp/evil.so"
    run = grade((BROKEN_CPP % BUILD).replace("functions=", f"extra_cflags=[{flag!r}], functions="))
    run.assert_verdict(Status.BUILD_ERROR, Code.FLAG_REFUSED)
    assert flag in run.out


CUDA = module(
    "from torch.utils.cpp_extension import load_inline",
    "kernel = load_inline('mine', 'torch::Tensor f(torch::Tensor x);', '__global__ void k() {}', functions=['f'])",
)


def test_inline_cuda_is_no_verdict_on_the_cpu(grade):
    grade(CUDA).assert_verdict(Status.INCONCLUSIVE, Code.NOT_ON_THIS_DEVICE)


FORGED = {
    "a folder in a source's name": "files=[SourceFile(name='../../x.cpp', text='')]",
    "a ninja variable in the name": "cpp_sources=['int x;'], name='a$b'",
    "too many sources": "cpp_sources=['x' * 3_000_000] * 4",
    "a line break in a flag": "cpp_sources=['int x;'], extra_cflags=['-O2\\nrule evil']",
}


@pytest.mark.parametrize("fields", FORGED.values(), ids=FORGED)
def test_a_forged_build_request_is_refused(judged, fields):
    """The runner's own checks are no protection: a submission can send requests of its own making."""
    name = "" if "name='a" in fields else "name='mine', "
    status, code = verdict(
        judged(
            module(
                "import gc",
                "from evaluator.protocol.frames import BuildRequest, Channel, SourceFile",
                "(channel,) = [thing for thing in gc.get_objects() if isinstance(thing, Channel)]",
                f"channel.send(BuildRequest({name}{fields}))",
                "print(channel.receive())",
                "raise RuntimeError('no build')",
            )
        )
    )
    assert status in (Status.BUILD_ERROR, Status.REJECTED)
    assert code in (Code.BUILD_REQUEST_REFUSED, Code.FLAG_REFUSED, Code.MALFORMED_FRAME, Code.COMPILE_FAILED)
