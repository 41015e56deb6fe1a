"""Languages: how each is recognised in a submission, found on a machine, and described in the documentation."""

import ast
import re
import time
from pathlib import Path

import pytest

from evaluator.doctor.diagnosis import kernel_languages
from evaluator.languages.language import distribution, mentions_in_text, nvrtc_kernels, triton_kernels
from evaluator.languages.registry import (
    CUPY,
    CUTE_DSL,
    CUTLASS,
    LANGUAGES,
    MARKS,
    PACKAGES,
    THUNDERKITTENS,
    TILELANG,
    failed_in_compiler,
    failed_language,
    found_installation,
    jit_kernels,
    language_of_package,
    recognized,
)
from evaluator.lint.lint import look
from evaluator.records import DeviceKind, Toolchain
from evaluator.submission.requirements import missing_package

DOCS = Path(__file__).parents[3] / "docs"
INLINE = "from torch.utils.cpp_extension import load_inline\n"
SOURCES = [
    ("import torch\ntorch.relu(x)", []),
    ("import triton.language as tl", [Toolchain.TRITON]),
    ("import torch, triton", [Toolchain.TRITON]),
    ("if True:\n    from triton import language as tl", [Toolchain.TRITON]),
    ("from torch.utils._triton import has_triton", []),
    ("import cutlass.cute as cute", [Toolchain.CUTE_DSL]),
    ("from cutlass import cute", [Toolchain.CUTE_DSL]),
    ("import tilelang.language as T", [Toolchain.TILELANG]),
    ("def f():\n    import tilelang", [Toolchain.TILELANG]),
    ("import torch\nk = torch.cuda._compile_kernel(SOURCE, 'k')", [Toolchain.NVRTC]),
    ("import cupy as cp\nk = cp.RawKernel(SOURCE, 'k')", [Toolchain.CUPY]),
    ("from cuda.bindings import nvrtc", [Toolchain.CUDA_PYTHON]),
    (f'{INLINE}load_inline(name="x", cpp_sources=S, cuda_sources=C)', [Toolchain.CUDA_INLINE]),
    (f'{INLINE}load_inline(name="x", cpp_sources=S)', [Toolchain.CPP]),
    (
        f'{INLINE}load_inline(cuda_sources="""\n#include <cute/tensor.hpp>\n__global__ void k() {{}}\n""")',
        [Toolchain.CUTLASS, Toolchain.CUDA_INLINE],
    ),
    (
        f'{INLINE}load_inline(cuda_sources="""\n#include "kittens.cuh"\n__global__ void k() {{}}\n""")',
        [Toolchain.THUNDERKITTENS, Toolchain.CUDA_INLINE],
    ),
    (f"import triton\nimport tilelang\n{INLINE}load_inline(cuda_sources=C)", None),
]


@pytest.mark.parametrize(("source", "expected"), SOURCES)
def test_a_language_is_recognised_by_imports_calls_and_headers(source, expected):
    expected = [Toolchain.TRITON, Toolchain.TILELANG, Toolchain.CUDA_INLINE] if expected is None else expected
    assert look(source).toolchains == expected
    assert recognized(mentions_in_text(source)) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("# import tilelang\ntext = 'import triton'", []),
        ('"""Docs:\nimport tilelang\n"""\nimport torch', []),
        ("import importlib\nm = importlib.import_module('tilelang')", [Toolchain.TILELANG]),
        ("import torch\nk = getattr(torch.cuda, '_compile_kernel')", [Toolchain.NVRTC]),
        ("import torch\nbuild = torch.cuda._compile_kernel\nk = build(S, 'k')", [Toolchain.NVRTC]),
        ("from torch.utils import cpp_extension as e\ne.load_inline(cuda_sources='')", [Toolchain.CPP]),
        ("from torch.utils import cpp_extension as e\ne.load(sources=['a.cu'])", [Toolchain.CUDA_INLINE]),
        ("class tilelang: pass\ntilelang.jit", []),
    ],
)
def test_the_syntax_tree_sees_more_than_the_text(source, expected):
    assert look(source).toolchains == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import tilelang\ndef f(:\n", [Toolchain.TILELANG]),
        ('cpp_extension.load(name="x", sources=["a.cu"])\n)', [Toolchain.CUDA_INLINE]),
        ("__global__ (", []),
    ],
)
def test_a_text_that_is_no_python_is_read_as_text(source, expected):
    assert look(source).toolchains is None
    assert recognized(mentions_in_text(source)) == expected


@pytest.mark.parametrize(
    "part",
    [
        *("import x ", "import a.b,", "#include <", "\n#include <a", "from " + " " * 300, "__global__ "),
        *("@jit\n", "@jit", "@triton.jit\n#\n", "@jit(\n"),
    ],
)
def test_a_hostile_text_takes_no_time(part):
    text = f"torch.cuda._compile_kernel {part * ((1 << 20) // len(part))}"
    started = time.thread_time()
    mentions_in_text(text)
    jit_kernels(text)
    assert time.thread_time() - started < 5.0


def test_the_kernels_of_nvrtc_are_those_of_the_text():
    text = """
A = '''extern "C" __global__ void __launch_bounds__(256, 2) plain(float* x) {}'''
B = '''template <typename T> __global__ static void made(T* x); __global__ void broken'''
k = torch.cuda._compile_kernel(A, "plain")
"""
    assert nvrtc_kernels(text) == ["made", "plain"]
    assert jit_kernels(f"{text}\n@triton.jit\ndef third(x): pass\n") == ["made", "plain", "third"]


DECORATED = """
@triton.jit
def plain(x): pass
@triton.jit(do_not_specialize=["n"])
def called(x, n): pass
@triton.autotune(
    configs=[triton.Config({})],
    key=[],
)
@triton.jit
# A remark.

def tuned(x): pass
class Holder:
    @jit
    @staticmethod
    def inner(x): pass
def host(x): pass
@functools.cache
def cached(x): pass
"""


def test_the_kernels_of_triton_are_those_with_the_decorator():
    assert triton_kernels(DECORATED) == ["called", "inner", "plain", "tuned"]


def test_many_kernels_are_cut():
    assert len(triton_kernels("".join(f"@triton.jit\ndef k{n}(): pass\n" for n in range(1000)))) == 256


def test_every_toolchain_has_one_language():
    assert sorted(each.toolchain for each in LANGUAGES) == sorted(Toolchain)


@pytest.mark.parametrize(
    ("package", "language"), [("tilelang", TILELANG), ("cutlass", CUTE_DSL), ("cupy", CUPY), ("einops", None)]
)
def test_a_package_belongs_to_a_language(package, language):
    assert language_of_package(package) is language


def test_headers_are_found_through_the_variable_or_the_package(monkeypatch, tmp_path):
    include = tmp_path / "include"
    monkeypatch.setenv("CUTLASS_PATH", str(tmp_path))
    assert found_installation(CUTLASS) is None  # A wrong folder is not replaced by a package.
    (include / "cutlass").mkdir(parents=True)
    version = include / "cutlass" / "version.h"
    version.write_text("#define CUTLASS_MAJOR 4\n#define CUTLASS_MINOR 2\n#define CUTLASS_PATCH 0\n")
    found = found_installation(CUTLASS)
    assert found.include_paths == (include,)
    assert found.version == f"4.2.0 in {include}"
    monkeypatch.delenv("CUTLASS_PATH")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert found_installation(CUTLASS) is None
    monkeypatch.setenv("THUNDERKITTENS_ROOT", str(tmp_path))
    (include / "kittens.cuh").write_text("")
    assert found_installation(THUNDERKITTENS).version == f"headers in {include}"


def test_the_first_installed_distribution_counts():
    assert distribution("no-such-distribution", "click", package="click")().version.count(".") == 2
    assert distribution("no-such-distribution", package="click")() is None


def test_a_distribution_whose_package_cannot_be_imported_is_not_installed(tmp_path, monkeypatch):
    assert distribution("click", package="no_such_package")() is None
    (tmp_path / "half_a_package" / "part").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path)
    assert distribution("click", package="half_a_package")() is None


WORDS = re.compile("|".join({MARKS, *PACKAGES, *Toolchain} - {"cuda", "cuda_inline", "cpp"}), re.IGNORECASE)
ELSEWHERE = {
    "names on the card": ("records/languages.py",),
    "a runner sees no file of the judge": ("runner/", "protocol/submission_files.py"),
    "Triton has an interpreter, and is ready in fork servers": (
        "judge/runners/fork_servers.py",
        "judge/runners/jit_kernels.py",
        "judge/runners/language_faults.py",
        "judge/runners/runner_faults.py",
    ),
    "environment variables": ("judge/exhibits/other_baselines.py", "api/ready_protocol.py"),
    "headers, namespaces and kernels of C++ libraries": (
        "cuda_source/symbols.py",
        "cuda_source/split.py",
        "emulator/frontend/unsupported_features.py",
        "emulator/headers.py",
        "judge/exhibits/ablation.py",
    ),
    "explanations for users": ("findings/",),
}
"""Modules and folders that may name a language, by reason. All other facts about languages are in `languages/`."""


def words_of_code(path):
    """Yield the names and texts of a module, without its docstrings and its import lines."""
    text = path.read_text(encoding="utf-8")
    if WORDS.search(text) is None:
        return
    tree = ast.parse(text)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.alias) and id(node) not in docstrings:
            values = (getattr(node, field, None) for field in ("id", "attr", "name", "arg", "value"))
            yield from (value for value in values if isinstance(value, str))


def test_no_other_module_names_a_language():
    package = DOCS.parent / "evaluator"
    paths = [path for path in package.rglob("*.py") if path.parent.name != "languages"]
    naming = [path.relative_to(package).as_posix() for path in paths if any(map(WORDS.search, words_of_code(path)))]
    allowed = tuple(prefix for prefixes in ELSEWHERE.values() for prefix in prefixes)
    assert [name for name in naming if not name.startswith(allowed)] == []
    assert [prefix for prefix in allowed if not any(name.startswith(prefix) for name in naming)] == []


def test_a_language_compiled_in_the_runner_has_marks():
    """Without marks, the first call has the time limit of a call that compiles nothing."""
    assert [each.title for each in LANGUAGES if bool(each.marks) != bool(each.packages or each.compiler)] == []


FRAMES = ["torch.nn.modules.module.Module._call_impl", "submission.ModelNew.forward"]


@pytest.mark.parametrize(
    ("frames", "language", "in_compiler"),
    [
        # Seen with TileLang 0.1.15, nvidia-cutlass-dsl 4.3.5 and CuPy 14.2.
        (["tilelang.jit.JITImpl.__call__", "tilelang.language.eager.builder.call"], TILELANG, True),
        (
            ["tilelang.jit.JITImpl.__call__", "tilelang.jit.kernel.JITKernel.__call__", "tvm_ffi.core.f"],
            TILELANG,
            False,
        ),
        (["cutlass.base_dsl.dsl.BaseDSL.jit_wrapper", "cutlass.base_dsl.utils.timer.f"], CUTE_DSL, True),
        (["cutlass.base_dsl.dsl.f", "cutlass.base_dsl.jit_executor.JitExecutor.__call__"], CUTE_DSL, False),
        (["cupy.cuda.compiler.compile_using_nvrtc"], CUPY, True),
        (["cupy._core.raw.RawKernel.__call__"], CUPY, False),
        (["tilelangs.f"], None, False),
    ],
)
def test_a_failure_belongs_to_the_language_on_the_stack(frames, language, in_compiler):
    frames = [*FRAMES, *frames]
    assert failed_language(frames) is language
    assert language is None or failed_in_compiler(language, frames) is in_compiler


def test_the_doctor_lists_each_language_with_its_command():
    listed = {each.toolchain: each for each in kernel_languages()}
    assert set(listed) == set(Toolchain) - {Toolchain.CUDA_INLINE, Toolchain.CPP}
    assert all(bool(each.fix) != each.ok for each in listed.values())
    assert listed[Toolchain.NVRTC].ok


def test_the_documentation_has_each_language_with_its_devices():
    page = (DOCS / "languages.md").read_text()
    rows = {row[0]: row[1:] for line in page.splitlines() if len(row := re.split(r" *\| *", line.strip("| "))) >= 4}
    for language in LANGUAGES:
        (cells,) = (cells for name, cells in rows.items() if name.startswith(language.title))
        for device, cell in zip((DeviceKind.CUDA, DeviceKind.EMULATED, DeviceKind.CPU), cells, strict=False):
            assert (cell.startswith("inconclusive")) == (device not in language.runs_on), (language.title, cell)


def test_a_language_without_its_code_is_missing_also_where_a_part_is_named(tmp_path, monkeypatch):
    (tmp_path / "cutlass" / "_mlir").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path)
    assert missing_package("ModuleNotFoundError", "No module named 'cutlass.cute'") == "cutlass"
    (tmp_path / "cutlass" / "__init__.py").write_text("")
    assert missing_package("ModuleNotFoundError", "No module named 'cutlass.no_such_part'") is None
