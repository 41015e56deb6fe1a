"""Building inline CUDA: the ladder of steps, with compilers that are functions of the test."""

import fcntl
import os
import time

import pytest
from msgspec.structs import replace

from evaluator.cache.build_cache import BuildCache
from evaluator.cache.eviction import clear
from evaluator.compile import precompiled
from evaluator.compile.cuda_builder import CudaBuilder
from evaluator.compile.precompiled import precompile, precompiled_folder, why_not_precompiled, worth_trying
from evaluator.findings import Code
from evaluator.protocol.frames import BuildRequest, SourceFile
from evaluator.toolchain import nvcc
from tests.unit.compile.tool_results import ended

CUDA = """
__global__ void k(float* x) {
    x[0] = y;
}
torch::Tensor f(torch::Tensor x) {
    k<<<1, 32>>>(x.data_ptr<float>());
    return x;
}
"""
SUBMISSION = f'source = """{CUDA}"""\n'
REQUEST = BuildRequest(
    name="ext", cpp_sources=["torch::Tensor f(torch::Tensor x);"], cuda_sources=[CUDA], functions={"f": "f"}
)
TEMPLATE = replace(
    REQUEST,
    cuda_sources=["template <class T> __global__ void k(T* x) {}\nvoid f(float* x) { k<<<1, 1>>>(x); }"],
    cpp_sources=["void f(float* x);"],
)
LIBRARY = b"\x7fELF library"
BAD_KERNEL = 'cuda.cu(7): error: identifier "y" is undefined\n'


class Tools:
    """Stands in for the sandbox: `fails` maps a step's name to what its compiler says."""

    def __init__(self, fails=None, listings=("", ""), **changes):
        self.calls = []
        self._fails = fails or {}
        self._listings = listings
        self._changes = changes

    def __call__(self, argv, *, work, timeout_s, limits, readable=()):
        files = {path.name: path.read_text() for path in work.iterdir() if path.is_file() and path.suffix != ".o"}
        step = "prepare" if "support.cpp" in files else "split" if "host.cpp" in files else "plain"
        if (work / ".light").exists():
            step = "light"
        self.calls.append((step, list(argv), files, timeout_s))
        if step == "prepare":
            for name in ("warpgrade_host.h.gch", "support.o"):
                (work / name).write_text("made")
        elif step not in self._fails:
            (work / "ext.so").write_bytes(LIBRARY)
            for name, text in zip(("host.undefined", "device.defined"), self._listings, strict=True):
                (work / name).write_text(text)
        return ended(**({"exit_code": step in self._fails, "output": self._fails.get(step, "")} | self._changes))

    @property
    def steps(self):
        return [step for step, *_ in self.calls]


@pytest.fixture(autouse=True)
def _new_key(named_compilers):
    precompiled._key.cache_clear()
    yield
    precompiled._key.cache_clear()


@pytest.fixture
def made(tmp_path):
    def builder(tools, *, ready=True, submission=SUBMISSION, too_much=lambda _: None):
        if ready:
            assert precompile(Tools(), tmp_path) is not None
        return CudaBuilder(tools, BuildCache(tmp_path), submission, 30.0, too_much, "90a", cache_root=tmp_path)

    return builder


def test_the_quickest_step_builds(made):
    tools = Tools()
    built = made(tools).build(REQUEST)
    assert built.library == LIBRARY
    assert built.finding is None
    assert tools.steps == ["split"]
    assert "step: split" in built.unit.log
    ((_, argv, files, _),) = tools.calls
    assert argv[:3] == ["/usr/bin/ninja", "-f", "build.ninja"]
    assert set(files) == {"host.cpp", "device.cu", "build.ninja", nvcc.FRONT_ENDS_NAME}
    assert "compute_90a,code=sm_90a" in files["build.ninja"]
    assert "warpgrade::bind<&f>" in files["host.cpp"]
    assert "torch" not in files["device.cu"]


def test_without_the_shared_headers_the_light_step_is_taken(made):
    tools = Tools()
    assert made(tools, ready=False).build(REQUEST).library == LIBRARY
    assert tools.steps == ["light"]


def test_a_step_that_fails_is_no_verdict(made):
    tools = Tools({"split": "host.cpp:1:1: error: x", "light": "cuda.cu(9): error: other"})
    built = made(tools).build(REQUEST)
    assert built.library == LIBRARY
    assert tools.steps == ["split", "light", "plain"]
    assert "note: split left: " in built.unit.log
    assert built.unit.diagnostics == []


def test_an_error_that_two_steps_agree_on_is_final(made):
    tools = Tools({"split": BAD_KERNEL, "light": BAD_KERNEL})
    built = made(tools).build(REQUEST)
    assert built.library is None
    assert tools.steps == ["split", "light"]
    assert built.finding.code == Code.COMPILE_FAILED.value
    assert built.finding.line == 4


def test_without_agreement_pytorchs_own_step_decides(made):
    tools = Tools({"split": "cuda.cu:5:1: error: x", "light": "cuda.cu(9): error: y", "plain": BAD_KERNEL})
    built = made(tools).build(REQUEST)
    assert tools.steps == ["split", "light", "plain"]
    assert "identifier" in built.finding.message


def test_a_function_that_is_declared_nowhere_needs_one_step(made):
    tools = Tools({"split": "main.cpp:4:18: error: 'f' was not declared in this scope\n"})
    assert made(tools).build(replace(REQUEST, cpp_sources=[""])).finding.code == Code.COMPILE_FAILED.value
    assert tools.steps == ["split"]


def test_a_hole_between_the_halves_is_seen_before_it_is_imported(made):
    tools = Tools(listings=(" U k(float*)\n", "0 T k(double*)\n"))
    built = made(tools).build(REQUEST)
    assert tools.steps == ["split", "light"]
    assert "does not have k(float*)" in built.unit.log


def test_kernels_of_templates_are_asked_for_by_the_host(made):
    tools = Tools(listings=(" U void k<float>(float*)\n", "0 W void k<float>(float*)\n"))
    assert made(tools).build(TEMPLATE).library == LIBRARY
    (_, first, files, _), (_, second, all_files, _) = tools.calls
    assert first[-1] == "host.o"
    assert second[-1] != "host.o"
    assert "device.cu" not in files
    assert "reinterpret_cast<const void*>(&k<float>)" in all_files["device.cu"]


def test_a_second_build_compiles_nothing(made):
    tools = Tools()
    first = made(tools).build(REQUEST)
    second = made(tools).build(REQUEST)
    assert len(tools.calls) == 1
    assert second.unit.cached
    assert second.library == LIBRARY
    assert second.unit.key == first.unit.key
    assert second.unit.log == first.unit.log


@pytest.mark.parametrize("flag", ["-ccbin=/tmp/g++", "-Xcompiler=-fplugin=x", "@x", "-DN=$(id)", "--run"])
def test_a_flag_that_is_not_allowed_is_refused(made, flag):
    tools = Tools()
    built = made(tools).build(replace(REQUEST, extra_cuda_cflags=["-O3", flag]))
    assert built.finding.code == Code.FLAG_REFUSED.value
    assert tools.calls == []


def test_an_architecture_of_the_submissions_is_replaced_and_told(made):
    tools = Tools()
    built = made(tools).build(replace(REQUEST, extra_cuda_cflags=["-O3", "-arch=sm_70", "--use_fast_math"]))
    ninja = tools.calls[0][2]["build.ninja"]
    assert "sm_70" not in ninja
    assert "-O3 --use_fast_math" in ninja
    assert "note: -arch=sm_70 replaced by sm_90a" in built.unit.log


@pytest.mark.parametrize(
    "change",
    [
        {"extra_cflags": ["-DN=4"]},
        {"extra_cuda_cflags": ["-DN=4"]},
        {"error_handling": False},
        {"functions": None, "cpp_sources": ["PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}"]},
        {"extra_cflags": ["-O3"], "cpp_sources": ["void f() { for (;;) {} }"]},
        {"cuda_sources": ["__global__ void k() {}\nvoid g() { at::cuda::getCurrentCUDAStream(); }"]},
        {"cuda_sources": ["#include <ATen/cuda/CUDAContext.h>\nvoid g() { c10::cuda::CUDAGuard guard(0); }"]},
        {"files": [SourceFile(name="a.cu", text=CUDA)]},
        {"headers": [SourceFile(name="a.cuh", text="")]},
    ],
)
def test_what_the_shared_header_does_not_fit_is_not_split(made, change):
    tools = Tools()
    built = made(tools).build(replace(REQUEST, **change))
    assert tools.steps == ["light"]
    assert "note: split left out: " in built.unit.log


def test_cpp_alone_is_built_as_it_is(made):
    tools = Tools()
    request = BuildRequest(name="ext", cpp_sources=["int f() { return 1; }"], functions={"f": "f"})
    assert made(tools).build(request).library == LIBRARY
    assert tools.steps == ["plain"]
    assert "nvcc" not in tools.calls[0][2]["build.ninja"]


def test_the_compilers_time_is_for_all_steps(made):
    tools = Tools({"split": "x", "light": "y"})
    made(tools).build(REQUEST)
    assert all(timeout_s <= 30.0 for *_, timeout_s in tools.calls)


def test_a_compiler_that_runs_too_long_ends_the_build(made):
    built = made(Tools(timed_out=True, exit_code=None)).build(REQUEST)
    assert built.finding.code == Code.COMPILER_TIMED_OUT.value


def test_the_shared_headers_are_made_once_and_can_be_read_by_others(tmp_path):
    tools = Tools()
    first = precompile(tools, tmp_path)
    assert precompile(tools, tmp_path) == first
    assert tools.steps == ["prepare"]
    assert first.header.with_name("warpgrade_host.h.gch").read_text() == "made"
    assert first.header.parent.parent == precompiled_folder(tmp_path)
    assert first.support.stat().st_mode & 0o444 == 0o444


@pytest.mark.parametrize("failure", [{"exit_code": 1}, {"timed_out": True, "exit_code": None}])
def test_shared_headers_that_do_not_compile_are_not_there(tmp_path, failure):
    assert precompile(Tools(**failure), tmp_path) is None
    assert not any(precompiled_folder(tmp_path).glob("[0-9a-f]*"))
    assert not worth_trying(tmp_path)
    failed = next(precompiled_folder(tmp_path).glob(".failed-*"))
    os.utime(failed, (time.time() - 25 * 3600,) * 2)
    assert worth_trying(tmp_path)
    assert precompile(Tools(), tmp_path) is not None
    assert not failed.exists()


def test_why_shared_headers_do_not_compile_is_remembered(tmp_path):
    precompile(Tools(exit_code=1, output="[1/2] precompile\na.h:3:1: fatal error: no b.h\nninja: stopped\n"), tmp_path)
    assert why_not_precompiled(tmp_path) == "a.h:3:1: fatal error: no b.h"


def test_a_compiler_that_was_killed_has_proven_nothing(tmp_path):
    assert precompile(Tools(exit_code=None, signal="SIGKILL"), tmp_path) is None
    assert worth_trying(tmp_path)


def test_while_another_process_makes_the_shared_headers_nothing_is_made(tmp_path):
    precompiled_folder(tmp_path).mkdir(parents=True)
    tools = Tools()
    with (precompiled_folder(tmp_path) / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert precompile(tools, tmp_path) is None
    assert tools.calls == []
    assert why_not_precompiled(tmp_path).startswith("another process")
    assert worth_trying(tmp_path)


def test_shared_headers_that_this_process_reads_stay(tmp_path):
    made = precompile(Tools(), tmp_path)
    assert clear(tmp_path).stayed == 1
    assert made.header.parent.exists()


def test_a_link_in_the_place_of_what_was_made_is_not_followed(tmp_path):
    class Linker(Tools):
        def __call__(self, argv, *, work, timeout_s, limits, readable=()):
            answer = super().__call__(argv, work=work, timeout_s=timeout_s, limits=limits)
            (work / "support.o").unlink()
            (work / "support.o").symlink_to("/etc/passwd")
            return answer

    assert precompile(Linker(), tmp_path) is None
