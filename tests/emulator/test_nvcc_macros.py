"""What nvcc defines: the submission's own lines of CUDA see it, and nothing else does."""

import re
import subprocess

import pytest

from evaluator.compile.emulated_builder import nvcc_version
from evaluator.emulator import headers
from evaluator.emulator.frontend.build_ladder import UNIT, build_steps
from evaluator.emulator.frontend.front_end import as_nvcc, front_end
from evaluator.protocol.frames import BuildRequest
from evaluator.toolchain import host_compiler, nvcc

ASKED = ("__NVCC__", "__CUDACC__", "__CUDACC_VER_MAJOR__", "__CUDA_ARCH_LIST__", "CUDART_VERSION")
PASTED = "#define PASTED(a, b) a##b\n#if PASTED(__NV, CC__) && PASTED(__CUDA_, ARCH__)\nseen\n#endif\n"
HOST = "void f() {\n#ifdef __CUDA_ARCH__\nseen_by_the_host\n#endif\n}\n"
DEVICE = "__device__ void g() {\n#if __CUDA_ARCH__ >= 800\nseen_by_the_gpu\n#endif\n}\n"


def steps_of(request):
    return build_steps(request, front_end(request))


def preprocessed(folder, text):
    (folder / "own.h").write_text("#ifdef __CUDACC__\nseen_by_own\n#endif\n")
    (folder / "torch").mkdir()
    (folder / "torch" / "types.h").write_text("#if defined(__CUDACC__) || defined(__NVCC__)\nseen_by_torch\n#endif\n")
    unit = f'#include <cuda_runtime.h>\n#include <emu/nvcc.h>\n#line 1 "cuda.cu"\n{as_nvcc(text)}'
    (folder / "unit.cpp").write_text(unit)
    command = [host_compiler.cxx().path, "-E", f"-I{folder}", f"-isystem{headers.INCLUDE}", str(folder / "unit.cpp")]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def seen(text):
    return [line for line in text.splitlines() if line.startswith("seen")]


def test_a_submissions_own_lines_see_it(tmp_path):
    text = "".join(f"#ifdef {name}\nseen_{name[2:]}\n#endif\n" for name in ASKED)
    assert seen(preprocessed(tmp_path, text)) == [f"seen_{name[2:]}" for name in ASKED]


def test_it_is_seen_by_a_pasted_name_and_by_own_headers_and_not_by_pytorchs(tmp_path):
    text = f'#include <torch/types.h>\n#include "own.h"\n{PASTED}'
    assert seen(preprocessed(tmp_path, text)) == ["seen_by_own", "seen"]


def test_the_architecture_is_for_what_a_gpu_runs(tmp_path):
    assert seen(preprocessed(tmp_path, HOST + DEVICE)) == ["seen_by_the_gpu"]


BOTH = """\
template <class T>
__host__ __device__ T threads(T n) {
#ifdef __CUDA_ARCH__
  return seen_by_the_gpu;
#else
  return seen_by_the_host + __LINE__;
#endif
}
__host__ __device__ int twice(int n) { return threads(n) * 2; }
__global__ void k() { twice(1); }
void f() { k(); twice(threads(1)); }
namespace own { void g() {} }
int line = __LINE__;
"""


def test_the_host_calls_its_own_form_of_a_function_of_both_sides(tmp_path):
    lines = [line.strip() for line in preprocessed(tmp_path, BOTH).splitlines()]
    assert "return seen_by_the_gpu;" in lines
    assert "return seen_by_the_host + 6;" in lines
    assert "int twice(int n) { return threads(n) * 2; }" in lines
    assert "int emu_host_twice(int n) { return emu_host_threads(n) * 2; }" in lines
    assert "void k() { twice(1); }" in lines
    assert "k(); emu_host_twice(emu_host_threads(1));" in lines
    assert "int line = 13;" in lines


@pytest.mark.parametrize(
    "text",
    [
        BOTH.replace("twice(1)", "x.threads(1)"),
        BOTH.replace("twice(1)", "std::threads(1)"),
        BOTH.replace("twice(1)", "apply(threads)"),
        BOTH + "void threads(float x) {}",
        "template <class T> __host__ __device__ T threads(T n = 1);\n" + BOTH,
        BOTH.replace("__host__ ", ""),
    ],
)
def test_a_name_with_other_uses_has_no_copy(tmp_path, text):
    assert "emu_host_threads" not in preprocessed(tmp_path, text)


def test_every_line_keeps_its_number(tmp_path):
    text = f"#include <torch/types.h>\nint a = __LINE__;\n{HOST}int b = __LINE__;\n{DEVICE}int c = __LINE__;\n"
    numbers = re.findall(r"int ([abc]) = (\d+);", preprocessed(tmp_path, text))
    lines = text.splitlines()
    assert numbers == [(name, str(lines.index(f"int {name} = __LINE__;") + 1)) for name in "abc"]


def test_host_files_see_none_of_it():
    (light, *_) = steps_of(BuildRequest(name="x", cpp_sources=["int f();"], cuda_sources=["int g();"], with_cuda=True))
    unit = light.files[UNIT]
    assert unit.index('"main.cpp"') < unit.index("emu/nvcc.h") < unit.index('"cuda.cu"')


@pytest.mark.skipif(nvcc_version() is None, reason="needs nvcc")
def test_all_that_nvcc_defines_is_defined(tmp_path):
    (tmp_path / "a.cu").write_text("int x;\n")
    flags = ["-gencode=arch=compute_90a,code=sm_90a", *nvcc.PYTORCH_NVCC_FLAGS]
    command = [nvcc.nvcc().path, *flags, "--dryrun", "-c", "a.cu"]
    said = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stderr
    defined = set(re.findall(r"-D(\w+)", said)) - set(re.findall(r"-D(\w+)", " ".join(flags)))
    header = (headers.INCLUDE / "emu" / "nvcc.h").read_text()
    newer = {"__CUDACC_DEVICE_ATOMIC_BUILTINS__", "__CUDA_ARCH_FAMILY_SPECIFIC__", "__CUDA_ARCH_SPECIFIC__"}
    assert {"__NVCC__", "__CUDACC__", "__CUDA_ARCH__"} <= defined
    assert defined - newer <= set(re.findall(r"#define (\w+)", header))
