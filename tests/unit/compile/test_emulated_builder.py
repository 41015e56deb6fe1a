"""The ladder of the emulator's builds, with compilers that are functions of the test."""

import pytest
from msgspec.structs import replace

from evaluator.cache.build_cache import BuildCache
from evaluator.compile import emulated_builder
from evaluator.compile.emulated_builder import EmulatedBuilder
from evaluator.compile.own_libraries import PRECOMPILED
from evaluator.emulator.frontend.build_ladder import SUPPORT, UNIT, StepName
from evaluator.emulator.frontend.front_end import front_end
from evaluator.findings import Code
from evaluator.protocol.frames import BuildRequest, SourceFile
from tests.unit.compile.tool_results import ended

CUDA = "__global__ void k(float* x) { x[0] = y; }\ntorch::Tensor f(torch::Tensor x) { return x; }"
REQUEST = BuildRequest(
    name="ext",
    cpp_sources=["torch::Tensor f(torch::Tensor x);"],
    cuda_sources=[CUDA],
    functions={"f": "f"},
    with_cuda=True,
)
OWN_PARTS = (SUPPORT, *PRECOMPILED.values())
ERROR = "cuda.cu:4:37: error: 'y' was not declared in this scope"


class Tool:
    """Stands in for the sandbox: ninja makes parts of ours, and g++ compiles in some steps or reports an error."""

    def __init__(self, *succeeds: StepName, parts=OWN_PARTS, errors=None):
        self.steps = []
        self.linked = []
        self._succeeds = succeeds
        self._parts = parts
        self._errors = errors or {}

    def __call__(self, argv, *, work, timeout_s, limits, readable=()):
        if argv[0].endswith("ninja"):
            text = (work / "build.ninja").read_text()
            for name in self._parts:
                if f"build {name}:" in text:
                    (work / name).write_bytes(b"made")
            return ended()
        step = step_of(argv)
        self.steps.append(step)
        self.linked.append({path.relative_to(work).as_posix() for path in work.rglob("*") if path.is_symlink()})
        if step in self._succeeds:
            (work / "ext.so").write_bytes(b"library")
            return ended()
        return ended(1, self._errors.get(step, ERROR))


def step_of(argv):
    if "-I.bound" in argv:
        return StepName.BOUND
    if "-I.light" in argv:
        return StepName.LIGHT
    return StepName.FULL if UNIT in argv else StepName.SPLIT


@pytest.fixture(autouse=True)
def _without_nvcc(monkeypatch, named_compilers):
    monkeypatch.setattr(emulated_builder, "nvcc_version", lambda: None)


@pytest.fixture
def builder_with(tmp_path):
    return lambda tool, read=front_end: EmulatedBuilder(tool, BuildCache(tmp_path), CUDA, 60.0, read)


def test_a_usual_extension_is_compiled_once_and_without_pybind11(builder_with):
    tool = Tool(*StepName)
    assert builder_with(tool).build(REQUEST).library == b"library"
    assert tool.steps == [StepName.BOUND]
    assert tool.linked == [{SUPPORT, PRECOMPILED[StepName.BOUND]}]


FAILING = [StepName.BOUND, StepName.FULL]


def test_what_the_light_headers_lack_is_compiled_with_all_headers(builder_with):
    tool = Tool(StepName.FULL)
    built = builder_with(tool).build(REQUEST)
    assert built.library == b"library"
    assert built.finding is None
    assert tool.steps == FAILING
    assert tool.linked[1] == {PRECOMPILED[StepName.FULL]}


def test_an_own_module_is_compiled_with_pybind11(builder_with):
    tool = Tool(StepName.LIGHT)
    assert builder_with(tool).build(replace(REQUEST, functions=None)).library == b"library"
    assert tool.linked == [{PRECOMPILED[StepName.LIGHT]}]


def test_an_error_with_all_headers_is_final(builder_with):
    tool = Tool()
    built = builder_with(tool).build(REQUEST)
    assert tool.steps == FAILING
    assert built.finding.code == Code.COMPILE_FAILED.value
    assert "'y' was not declared" in built.finding.message


def test_a_bound_function_that_no_source_declares_needs_one_step(builder_with):
    tool = Tool(errors={StepName.BOUND: "main.cpp:3:16: error: 'f' was not declared in this scope"})
    assert builder_with(tool).build(replace(REQUEST, cpp_sources=[""])).finding.code == Code.COMPILE_FAILED.value
    assert tool.steps == [StepName.BOUND]


WITHOUT_PYTORCH = BuildRequest(name="ext", files=[SourceFile("k.cu", "__global__ void k() { y; }")], with_cuda=True)


def test_a_text_without_pytorch_needs_no_precompiled_header(builder_with):
    tool = Tool(StepName.LIGHT)
    assert builder_with(tool).build(WITHOUT_PYTORCH).library == b"library"
    assert tool.linked == [set()]


def test_an_error_in_a_text_without_pytorch_is_final(builder_with):
    tool = Tool(errors={StepName.LIGHT: "k.cu:1:25: error: 'y' was not declared in this scope"})
    assert builder_with(tool).build(WITHOUT_PYTORCH).finding.code == Code.COMPILE_FAILED.value
    assert tool.steps == [StepName.LIGHT]


@pytest.mark.parametrize(("name", "step"), [("y", StepName.LIGHT), ("f", StepName.SPLIT)])
def test_separate_units_without_pytorch_are_the_last_step(builder_with, name, step):
    clash = f"b.cu:1:5: error: redefinition of '{name}'"
    files = [SourceFile("a.cu", "int f;"), SourceFile("b.cu", "int f;")]
    tool = Tool(errors=dict.fromkeys(StepName, clash))
    assert builder_with(tool).build(replace(WITHOUT_PYTORCH, files=files)).finding.code == Code.COMPILE_FAILED.value
    assert tool.steps[-1] is step


def test_an_error_without_pybind11_is_not_shown(builder_with):
    of_its_own = "main.cpp:3:1: error: no converter for py::object"
    built = builder_with(Tool(errors={StepName.BOUND: of_its_own})).build(REQUEST)
    assert [entry.message for entry in built.unit.diagnostics] == ["'y' was not declared in this scope"]


def test_names_that_both_files_declare_are_tried_in_separate_units(builder_with):
    clash = "cuda.cu:4:5: error: redefinition of 'at::Tensor f(at::Tensor)'"
    tool = Tool(StepName.SPLIT, errors={StepName.FULL: clash})
    assert builder_with(tool).build(REQUEST).library == b"library"
    assert tool.steps == [*FAILING, StepName.SPLIT]
    assert tool.linked[2] == {PRECOMPILED[StepName.FULL]}


def test_a_compiler_that_is_stopped_without_pybind11_is_stopped(builder_with):
    class Slow(Tool):
        def __call__(self, argv, **how):
            done = super().__call__(argv, **how)
            return done if argv[0].endswith("ninja") else replace(done, timed_out=True)

    tool = Slow()
    assert builder_with(tool).build(REQUEST).finding.code == Code.COMPILER_TIMED_OUT.value
    assert tool.steps == [StepName.BOUND]


def test_without_the_support_every_build_has_pybind11(builder_with):
    tool = Tool(*StepName, parts=())
    assert builder_with(tool).build(REQUEST).library == b"library"
    assert tool.steps == [StepName.FULL]


def test_all_steps_share_the_time_of_the_build(builder_with):
    left = []

    class Slow(Tool):
        def __call__(self, argv, *, timeout_s, **how):
            done = super().__call__(argv, timeout_s=timeout_s, **how)
            if argv[0].endswith("ninja"):
                return done
            left.append(timeout_s)
            return replace(done, wall_s=50.0)

    builder_with(Slow()).build(REQUEST)
    assert left == [60.0, 10.0]


def test_the_runners_of_a_submission_share_the_front_ends_work(builder_with):
    read = []
    builder = builder_with(Tool(*StepName), lambda request: read.append(request) or front_end(request))
    assert builder.build(REQUEST).unit.cached is False
    assert builder.build(REQUEST).unit.cached is True
    assert read == [REQUEST]
    other = replace(REQUEST, cuda_sources=[CUDA + "//"])
    builder.build(other)
    assert read == [REQUEST, other]


def test_what_the_front_end_cannot_read_is_not_remembered(builder_with):
    read = []
    builder = builder_with(Tool(), lambda request: read.append(request) or "it takes too long")
    codes = [builder.build(REQUEST).finding.code for _ in range(2)]
    assert codes == [Code.NOT_EMULATED.value] * 2
    assert len(read) == 2


def error_of(message, cuda=CUDA):
    """Return what a build tells for g++'s `message` about the fourth line of cuda.cu, the first of `cuda`."""
    found = f"cuda.cu:4:37: error: {message}"

    def told(builder_with):
        tool = Tool(errors=dict.fromkeys(StepName, found))
        return builder_with(tool).build(replace(REQUEST, cuda_sources=[cuda])).finding

    return told


@pytest.mark.parametrize(
    ("cuda", "message", "said"),
    [
        ("x = 1 k<<<1, 2>>>(x);", "expected ';' before 'emu'", "expected ';' before 'k'"),
        ("x = 1\n own::k<T><<<1, 2>>>(x);", "expected ';' before 'emu'", "expected ';' before 'own'"),
        ("y.is_cuda();", "'class Y' has no member named 'is_cpu'", "'class Y' has no member named 'is_cuda'"),
        ("y.is_cpu;", "'class Y' has no member named 'is_cpu'", "'class Y' has no member named 'is_cpu'"),
        (
            "__syncthread();",
            "'__syncthread' was not declared in this scope; did you mean '__syncthreads_or'?",
            "'__syncthread' was not declared in this scope; did you mean \u2018__syncthreads\u2019?",
        ),
        (
            "__shared__ float s[n];",
            "no matching function for call to \u2018shared<float [n]>(int)\u2019",
            "extern __shared__ float name[]; and pass the bytes as third argument of <<<>>>",
        ),
        ("emu_own::k(1);", "'k' is not a member of 'emu_own'", "'k' is not a member of 'emu'"),
        (
            "#include <ATen/cuda/CUDAContex.h>",
            "ATen/cuda/CUDAContex.h: No such file or directory",
            "No such file or directory; did you mean \u2018ATen/cuda/CUDAContext.h\u2019?",
        ),
    ],
)
def test_a_typing_mistake_is_a_build_error_in_the_words_of_the_submission(builder_with, cuda, message, said):
    found = error_of(message, cuda=cuda)(builder_with)
    assert found.code == Code.COMPILE_FAILED.value
    assert found.message.endswith(said)


@pytest.mark.parametrize("name", ["__ffma2_rn", "cudaMalloc3D"])
def test_a_name_that_cuda_has_is_a_gap_of_the_emulator(builder_with, name):
    message = f"'{name}' was not declared in this scope; did you mean '{name[:-1]}'?"
    assert error_of(message)(builder_with).code == Code.NOT_EMULATED.value


STREAM = "void g() { at::cuda::getCurrentCUDAStream(); }"
OF_STREAM = "'getCurrentCUDAStream' is not a member of 'at::cuda'"


def test_a_missing_include_is_named(builder_with):
    found = error_of(OF_STREAM, cuda=STREAM)(builder_with)
    assert found.code == Code.COMPILE_FAILED.value
    assert found.next_step == "Add to the CUDA source: #include <c10/cuda/CUDAStream.h>"


def test_another_header_of_pytorch_may_include_the_missing_one(builder_with):
    includes = f"{STREAM}\n#include <c10/cuda/CUDAGuard.h>"
    assert error_of(OF_STREAM, cuda=includes)(builder_with).code == Code.NOT_EMULATED.value


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cuda_sources": ['void f() { puts("a\n"); }']}, "a string has no end in its line"),
        ({"cuda_sources": ["/* void f() {}"]}, "a comment has no end"),
        ({"cuda_sources": ["void f() { k<<<(n + 255) / 256, 256>>>(p, n; }"]}, "a launch has a ( without its )"),
        ({"cuda_sources": ["void f() { k<<<g, (n + 1 >>>(p); }"]}, "a launch has a ( without its )"),
        ({"cuda_sources": ["void k() {}", "void f() { k<<<1, 2>>>(); }"]}, "k is launched, but is no kernel"),
        ({"cuda_sources": ["__device__ void k() {} void f() { k<<<1, 2>>>(); }"]}, "k is launched, but is no kernel"),
        (
            {"cuda_sources": ["PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}"]},
            "functions=[...] generates a Python module",
        ),
    ],
)
def test_some_mistakes_need_no_compiler(builder_with, change, said):
    tool = Tool()
    found = builder_with(tool).build(replace(REQUEST, **change)).finding
    assert found.code == Code.COMPILE_FAILED.value
    assert found.message.startswith(f"ext does not compile: {said}")
    assert tool.steps == []


@pytest.mark.parametrize(
    "text",
    [
        "#if 0\n don't \" /*\n#endif",
        'auto s = R"(a\n"b)";',
        "char c = '\"'; // \"",
        'auto s = "a\\\n b";',
        'auto s = "a\\\r\n b";',
        "#ifdef OWN\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}\n#endif",
        "PYBIND11_MODULE(other, m) {}",
        "void f() { k<<<1, 2>>>(p, [=](int i) { return (i; }); }",
        "// PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}",
        "__global__ void k(int); void k(int i) {} void f() { k<<<1, 2>>>(1); }",
        "#define KERNEL __global__\nKERNEL void k() {} void f() { k<<<1, 2>>>(); }",
        "template <typename K> void f(K kernel) { kernel<<<1, 2>>>(); }",
    ],
)
def test_what_only_looks_like_such_a_mistake_is_compiled(builder_with, text):
    tool = Tool(*StepName)
    assert builder_with(tool).build(replace(REQUEST, cuda_sources=[text])).library == b"library"
