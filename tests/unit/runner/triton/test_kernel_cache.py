"""Compiled kernels on their way to the next runner of the same submission."""

import os
import shutil
import subprocess
import sys

import pytest
import torch

from evaluator.protocol.frames import CompiledKernel
from evaluator.runner.triton import compilation
from evaluator.runner.triton.compilation import compiled_kernels, use_folder
from evaluator.runner.triton.launches import leave_out_compiled

pytestmark = pytest.mark.filterwarnings("ignore:TRITON_DEFAULT:UserWarning")

COPY = """
@triton.jit
def copy_kernel(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i))


@triton.jit
def other_kernel(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, 2 * tl.load(x + i))
"""


@pytest.fixture(autouse=True)
def variables(monkeypatch):
    """Restore what `use_folder` sets."""
    for name in ("TRITON_CACHE_DIR", "TRITON_CACHE_AUTOTUNING", "TRITON_HOME"):
        monkeypatch.setenv(name, os.environ.get(name, ""))


def launched(kernel):
    x = torch.zeros(64)
    return kernel[(1,)](x, torch.empty_like(x), BLOCK=64)


def test_the_next_runner_compiles_nothing(driver, submission, tmp_path, monkeypatch):
    module, _ = submission(COPY)
    first, second = tmp_path / "first", tmp_path / "second"
    use_folder(first, b"")
    kernel = launched(module.copy_kernel)
    found = compiled_kernels(first)
    claimed = CompiledKernel("copy_kernel", registers=40, local_bytes=12, shared_bytes=kernel.metadata.shared)
    assert claimed in found.kernels
    shutil.rmtree(first)

    use_folder(second, found.cache)
    module, _ = submission(COPY)
    from triton import knobs

    hits = []
    monkeypatch.setattr(knobs.compilation, "listener", lambda **facts: hits.append(facts["cache_hit"]))
    launched(module.copy_kernel)
    assert hits == [True]
    assert driver.launched == ["copy_kernel", "copy_kernel"]


TUNED = """
@triton.autotune(configs=[triton.Config({"BLOCK": block}) for block in (64, 128)], key=["count"])
@triton.jit
def tuned_kernel(x, out, count, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < count), mask=i < count)
"""


def test_the_next_runner_takes_over_the_autotuners_choice(driver, submission, tmp_path):
    measured = []

    def bench(call, quantiles):
        call()
        measured.append(quantiles)
        return [1.0 / len(measured)] * 3

    driver.get_benchmarker = lambda: bench
    x = torch.zeros(64)
    chosen, cache = [], b""
    for name in ("first", "second"):
        use_folder(tmp_path / name, cache)
        module, _ = submission(TUNED)
        module.tuned_kernel[(1,)](x, torch.empty_like(x), 64)
        chosen.append(module.tuned_kernel.best_config.kwargs)
        cache = compiled_kernels(tmp_path / name).cache
    assert len(measured) == 2
    assert chosen == [{"BLOCK": 128}, {"BLOCK": 128}]


def test_a_cache_beyond_the_limit_is_not_sent(tmp_path, monkeypatch):
    folder = tmp_path / "triton-cache"
    folder.mkdir()
    (folder / "a").write_bytes(b"x" * 1000)
    assert compiled_kernels(tmp_path).cache
    monkeypatch.setattr(compilation, "_MOST_RAW_BYTES", 999)
    assert compiled_kernels(tmp_path).cache == b""


def test_a_cache_that_cannot_be_compressed_enough_is_not_sent(tmp_path, monkeypatch):
    folder = tmp_path / "triton-cache"
    folder.mkdir()
    (folder / "a").write_bytes(os.urandom(1000))
    monkeypatch.setattr(compilation, "MOST_CACHE_BYTES", 1000)
    assert compiled_kernels(tmp_path).cache == b""


def test_a_runner_without_triton_has_nothing(tmp_path):
    assert compiled_kernels(tmp_path / "nowhere").cache == b""


@pytest.mark.parametrize(("names", "left"), [([], []), (["copy_kernel"], ["other_kernel"])])
def test_left_out_launches_do_nothing(driver, submission, monkeypatch, names, left):
    from triton.compiler.compiler import CompiledKernel as Compiled
    from triton.runtime.jit import JITFunction

    module, _ = submission(COPY)
    monkeypatch.setattr(JITFunction, "run", JITFunction.run)
    monkeypatch.setattr(Compiled, "__getitem__", Compiled.__getitem__)
    leave_out_compiled(names)
    launched(module.copy_kernel)
    launched(module.other_kernel)
    assert driver.launched == left
    driver.threads = 64
    with pytest.raises(Exception, match="out of resource: threads"):
        module.copy_kernel[(1,)](torch.zeros(128), torch.zeros(128), BLOCK=128)


INTERPRETED = """
import os
os.environ["TRITON_INTERPRET"] = "1"
import torch, triton
import triton.language as tl

@triton.jit
def add_sum(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i) + tl.sum(tl.load(x + i), 0))
"""
FORGETS = """
import sys
import evaluator.runner.triton.preloaded
from evaluator.runner.triton.compilation import forget_import

def loaded(text):
    forget_import(text)
    exec(compile(text, sys.argv[1], "exec"), globals())

imported = sys.modules["triton"]
forget_import("import triton")
assert sys.modules["triton"] is imported
loaded(open(sys.argv[1]).read())
out = torch.empty(8)
add_sum[(1,)](torch.ones(8), out, BLOCK=8)
print(out.tolist() == [9.0] * 8)
"""


def test_a_text_with_variables_of_triton_imports_triton_anew(tmp_path):
    pytest.importorskip("triton", reason="Triton is not installed: pip install 'warpgrade[triton]'")
    path = tmp_path / "submission.py"
    path.write_text(INTERPRETED)
    # Another process has Triton without its interpreter, as the fork server on `cuda`.
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", FORGETS, str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["True"], done.stderr


def test_the_home_folder_is_the_runners(tmp_path):
    use_folder(tmp_path, b"")
    assert os.environ["TRITON_HOME"] == str(tmp_path)
