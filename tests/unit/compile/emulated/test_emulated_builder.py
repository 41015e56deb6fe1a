"""The ladder of the emulator's builds, with compilers that are functions of the test."""

import pytest
from msgspec.structs import replace

from evaluator.cache.build_cache import BuildCache
from evaluator.compile.emulated import emulated_builder, nvcc_check
from evaluator.compile.emulated.emulated_builder import EmulatedBuilder
from evaluator.compile.emulated.precompiled_headers import PRECOMPILED
from evaluator.emulator.frontend.build_ladder import SUPPORT, UNIT, StepName
from evaluator.emulator.frontend.front_end import front_end
from evaluator.findings import Code
from evaluator.protocol.frames import BuildRequest
from evaluator.sandbox import ToolResult
from evaluator.toolchain import host_compiler

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

    def __init__(self, *succeeds: StepName, parts=OWN_PARTS, errors=None, names=None):
        self.steps = []
        self.linked = []
        self._succeeds = succeeds
        self._parts = parts
        self._errors = errors or {}
        self._names = names

    def __call__(self, argv, *, work, timeout_s, limits, readable=()):
        if argv[0].endswith("ninja"):
            text = (work / "build.ninja").read_text()
            for name in self._parts:
                if f"build {name}:" in text:
                    (work / name).write_bytes(b"made")
            return result(0, "")
        if "-E" in argv:  # the names in the headers
            if self._names is None:
                return result(1, "")
            (work / ".names.i").write_text(self._names(argv))
            return result(0, "")
        step = step_of(argv)
        self.steps.append(step)
        self.linked.append({path.relative_to(work).as_posix() for path in work.rglob("*") if path.is_symlink()})
        if step in self._succeeds:
            (work / "ext.so").write_bytes(b"library")
            return result(0, "")
        return result(1, self._errors.get(step, ERROR))


def result(code, output):
    return ToolResult(exit_code=code, signal=None, timed_out=False, output=output, wall_s=1.0)


def step_of(argv):
    if "-I.bound" in argv:
        return StepName.BOUND
    if "-I.light" in argv:
        return StepName.LIGHT
    return StepName.FULL if UNIT in argv else StepName.SPLIT


@pytest.fixture(autouse=True)
def _fake_toolchain(monkeypatch):
    monkeypatch.setattr(host_compiler, "cxx", lambda: host_compiler.Toolchain("/usr/bin/g++", "g++ 1.0"))
    monkeypatch.setattr(host_compiler, "ninja", lambda: "/usr/bin/ninja")
    for module in (emulated_builder, nvcc_check):
        monkeypatch.setattr(module, "nvcc_version", lambda: None)


@pytest.fixture
def builder_with(tmp_path):
    return lambda tool, read=front_end: EmulatedBuilder(tool, BuildCache(tmp_path), CUDA, 60.0, read)


def test_a_usual_extension_is_compiled_once_and_without_pybind11(builder_with):
    tool = Tool(*StepName)
    assert builder_with(tool).build(REQUEST).library == b"library"
    assert tool.steps == [StepName.BOUND]
    assert tool.linked == [{SUPPORT, PRECOMPILED[StepName.BOUND]}]


def test_what_needs_pybind11_is_compiled_with_it(builder_with):
    tool = Tool(StepName.LIGHT)
    built = builder_with(tool).build(REQUEST)
    assert built.library == b"library"
    assert built.finding is None
    assert tool.steps == [StepName.BOUND, StepName.LIGHT]
    assert tool.linked[1] == {PRECOMPILED[StepName.LIGHT]}


def test_an_error_without_pybind11_confirms_no_other_error(builder_with):
    tool = Tool()
    built = builder_with(tool).build(REQUEST)
    assert tool.steps == [StepName.BOUND, StepName.LIGHT, StepName.FULL]
    assert built.finding.code == Code.COMPILE_FAILED.value
    assert "'y' was not declared" in built.finding.message


def test_an_error_without_pybind11_is_not_shown(builder_with):
    of_its_own = "main.cpp:3:1: error: no converter for py::object"
    built = builder_with(Tool(errors={StepName.BOUND: of_its_own})).build(REQUEST)
    assert [entry.message for entry in built.unit.diagnostics] == ["'y' was not declared in this scope"]


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
    assert tool.steps == [StepName.LIGHT]


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


def headers(argv):
    """Stands in for the preprocessor: the names in the headers of a step."""
    return "float relu Tensor" if step_of(argv) in PRECOMPILED else "float relu Tensor forward nn"


FULL_SILENCE = [StepName.BOUND, StepName.LIGHT, StepName.FULL]


@pytest.mark.parametrize(
    ("message", "steps"),
    [
        ("'y' was not declared in this scope; did you mean 'x'?", FULL_SILENCE[:1]),
        ("'class Box' has no member named 'y'", FULL_SILENCE[:1]),
        ("expected ';' before '}' token", FULL_SILENCE[:1]),
        ("could not convert 'y' from 'float*' to 'Tensor'", FULL_SILENCE[:1]),
        ("'nn' was not declared in this scope", FULL_SILENCE),  # all of PyTorch's headers declare it
        ("no matching function for call to 'k(float)'", FULL_SILENCE),  # the headers may have another overload
        ("cannot convert 'forward' to 'float'", FULL_SILENCE),
    ],
)
def test_an_error_that_no_header_could_mend_ends_the_build(builder_with, message, steps):
    tool = Tool(errors=dict.fromkeys(StepName, f"cuda.cu:4:37: error: {message}"), names=headers)
    built = builder_with(tool).build(REQUEST)
    assert tool.steps == steps
    assert [(entry.message, entry.submission_line) for entry in built.unit.diagnostics] == [(message, 1)]


def test_a_declaration_that_only_all_headers_have_is_found(builder_with):
    error = "cuda.cu:4:37: error: 'nn' was not declared in this scope"
    tool = Tool(StepName.FULL, errors=dict.fromkeys(StepName, error), names=headers)
    assert builder_with(tool).build(REQUEST).unit.ok
    assert tool.steps == FULL_SILENCE


@pytest.mark.parametrize(
    ("line", "change", "step"),
    [
        (5, {"cuda_sources": ["#ifdef anything\n" + CUDA]}, StepName.BOUND),
        (5, {"cuda_sources": ["#ifdef forward\n" + CUDA]}, StepName.FULL),  # maybe another part with all headers
        (5, {"cuda_sources": ["#if __has_include(<x>)\n" + CUDA]}, StepName.FULL),
        (4, {"extra_cuda_cflags": ["-DMORE"]}, StepName.FULL),
    ],
)
def test_conditions_on_headers_leave_the_error_to_all_headers(builder_with, line, change, step):
    error = f"cuda.cu:{line}:37: error: 'y' was not declared in this scope"
    tool = Tool(errors=dict.fromkeys(StepName, error), names=headers)
    assert not builder_with(tool).build(replace(REQUEST, **change)).unit.ok
    assert tool.steps[-1] is step


def test_all_errors_are_shown_beside_a_certain_one(builder_with):
    errors = [
        "cuda.cu:4:37: error: 'y' was not declared in this scope",
        "cuda.cu:4:40: error: expected ';' before '}' token",
    ]
    tool = Tool(errors=dict.fromkeys(StepName, "\n".join(errors)), names=headers)
    built = builder_with(tool).build(REQUEST)
    assert tool.steps == FULL_SILENCE[:1]
    assert [entry.column for entry in built.unit.diagnostics] == [37, 40]


@pytest.mark.parametrize(
    "root",
    [
        "'nn' has not been declared",
        "'nn' is not a member of 'torch'",
        "no matching function for call to 'relu(int)'",
        "void",
    ],
)
def test_a_name_declared_by_a_missing_type_is_no_error_of_the_submission(builder_with, root):
    """`torch::nn::Linear y` without the headers of nn: the unknown type leaves `y` unknown."""
    errors = f"cuda.cu:4:30: error: {root}\ncuda.cu:4:37: error: 'y' was not declared in this scope"
    tool = Tool(StepName.FULL, errors=dict.fromkeys(StepName, errors), names=headers)
    assert builder_with(tool).build(REQUEST).unit.ok
    assert tool.steps == FULL_SILENCE


def test_an_error_in_generated_lines_of_the_first_step_is_no_evidence(builder_with):
    error = "warpgrade_bind.h:9:2: error: 'y' was not declared in this scope"
    tool = Tool(StepName.LIGHT, errors={StepName.BOUND: error}, names=headers)
    assert builder_with(tool).build(REQUEST).unit.ok
