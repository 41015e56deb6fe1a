"""What Triton's compiler refuses: reason and place, for errors of its front end, of ptxas, and of the GPU's limits."""

import pytest
import torch

from evaluator.runner import submission_module
from evaluator.runner.triton.compilation import refused_kernel
from tests.unit.runner.triton.conftest import HEAD

pytestmark = pytest.mark.filterwarnings("ignore:TRITON_DEFAULT:UserWarning")

FRONT_END = '''
class Holder:
    @triton.jit
    def unused(x):
        pass


    @triton.jit
    def relu_kernel(x, out, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        """é"""; tl.store(out + i, tl.relu(tl.load(x + i)))
'''
NESTED = """
@triton.jit
def helper(value):
    return tl.reshape(value, (3, 5))


@triton.jit
def outer_kernel(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, helper(tl.load(x + i)))
"""
PTXAS = """
@triton.autotune(configs=[triton.Config({})], key=[])
@triton.jit
def asm_kernel(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i)
    tl.store(out + i, tl.inline_asm_elementwise("bogus.f32 $0, $1;", "=r,r", [v], tl.float32, is_pure=True, pack=1))
"""
PLAIN = """
@triton.jit
def copy_kernel(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i))
"""


def line_of(text, part):
    return next(n for n, line in enumerate((HEAD + text).splitlines(), start=1) if part in line)


def refusal(kernel, path):
    x = torch.zeros(64)
    with pytest.raises(Exception) as raised:  # noqa: PT011 - each error of Triton's has a class of its own
        kernel[(1,)](x, torch.empty_like(x), BLOCK=64)
    return refused_kernel(raised.value, path)


@pytest.mark.parametrize(
    ("text", "name", "part", "at", "reason"),
    [
        (FRONT_END, "Holder.relu_kernel", "tl.relu", "tl.relu", "no attribute 'relu'"),
        (NESTED, "outer_kernel", "return tl.reshape", "tl.reshape", "power of 2"),
        (PTXAS, "asm_kernel", "def asm_kernel", None, "Not a name of any known instruction: 'bogus'"),
    ],
    ids=["front end", "nested", "ptxas"],
)
def test_a_refused_kernel_has_reason_line_and_column(driver, submission, text, name, part, at, reason):
    module, path = submission(text)
    kernel = module
    for each in name.split("."):
        kernel = getattr(kernel, each)
    found = refusal(kernel, path)
    line = line_of(text, part)
    shown = (HEAD + text).splitlines()[line - 1]
    assert reason in found.reason
    assert (found.line, found.column) == (line, 0 if at is None else shown.index(at) + 1)
    assert "more lines" not in found.reason
    assert driver.launched == []


def test_a_kernel_too_large_for_the_gpu_is_refused_at_its_def(driver, submission):
    module, path = submission(PLAIN)
    driver.threads = 64
    found = refusal(module.copy_kernel, path)
    assert "out of resource: threads, Required: 128, Hardware limit: 64" in found.reason
    assert (found.kernel, found.line) == ("copy_kernel", line_of(PLAIN, "def copy_kernel"))


def test_a_submissions_own_exception_is_not_the_compilers(driver, submission, tmp_path):
    module, path = submission(PLAIN)
    x = torch.zeros(64)
    module.copy_kernel[(1,)](x, x, BLOCK=64)
    assert driver.launched == ["copy_kernel"]
    assert refused_kernel(ValueError("at 4:20: tl.relu"), path) is None


def test_an_error_of_any_shape_is_described(driver, monkeypatch, tmp_path):
    """A submission can make the compiler's exception say anything, and more than a frame holds."""
    from triton.compiler.errors import CompilationError

    class Odd(CompilationError):
        def __init__(self):
            self.src, self.node, self.error_message = "def k(", None, "\udc80" * 100_000

    monkeypatch.setitem(submission_module._lines_before, str(tmp_path / "submission.py"), 0)
    found = submission_module.describe(Odd())
    assert found.refused.reason == "?" * 8192
    assert (found.refused.line, found.refused.column) == (0, 0)

    class Worse(CompilationError):
        src = property(lambda self: 1 / 0)

        def __init__(self):
            pass

        def __str__(self):
            return "odd"

    assert submission_module.describe(Worse()).refused is None


def test_without_triton_nothing_is_refused(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "triton.compiler.errors", None)
    assert refused_kernel(RuntimeError("PassManager::run failed"), str(tmp_path)) is None
