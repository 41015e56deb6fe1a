"""The precompiled headers with the real compiler: taken where they fit, passed over where they do not."""

import subprocess
from pathlib import Path

import pytest

from evaluator.cache.build_cache import BuildCache
from evaluator.compile.own_libraries import PRECOMPILED, binding_support, precompiled_headers
from evaluator.emulator.frontend.build_ladder import SUPPORT, Step, StepName, build_steps
from evaluator.emulator.frontend.front_end import front_end
from evaluator.paths import cache_folder
from evaluator.protocol.frames import BuildRequest
from evaluator.toolchain import host_compiler
from tests.cuda_builds import local_tool

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("clang" in host_compiler.cxx().version.lower(), reason="only g++ reads such a header"),
]

KERNEL = "__global__ void doubled(float* x) { if (threadIdx.x > 3) return; x[threadIdx.x] *= 2; }\n"
LAUNCH = "void launch(torch::Tensor x) { doubled<<<1, 32>>>(x.data_ptr<float>()); }\n"


@pytest.fixture(scope="module")
def linked() -> dict[str, Path]:
    """The kept parts, where a grade has made them already: they take half a minute."""
    cache = BuildCache(cache_folder())
    header = precompiled_headers(local_tool({}), cache, StepName.BOUND)
    support = binding_support(local_tool({}), cache)
    assert header is not None
    assert support is not None
    return {PRECOMPILED[StepName.BOUND]: header, SUPPORT: support}


def bound_step(folder: Path, linked: dict[str, Path], **changes) -> Step:
    """Write the files of the first step, with the kept parts."""
    parts = {"cpp_sources": ["void launch(torch::Tensor x);"], "cuda_sources": [KERNEL + LAUNCH]} | changes
    request = BuildRequest(name="ext", functions={"launch": "launch"}, with_cuda=True, **parts)
    step = build_steps(request, front_end(request))[0]
    assert step.name is StepName.BOUND
    for name, text in step.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name, target in linked.items():
        (folder / name).symlink_to(target)
    return step


def headers_read(folder: Path, linked: dict[str, Path], **changes) -> tuple[list[str], list[str]]:
    """Preprocess an extension; give the precompiled headers that g++ took, and those that did not fit."""
    step = bound_step(folder, linked, **changes)
    done = subprocess.run(
        [*step.argv, "-H", "-E", "-fpch-preprocess"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stderr.splitlines()
    return [line[2:] for line in lines if line.startswith("! ")], [line[2:] for line in lines if line.startswith("x ")]


HEADER = PRECOMPILED[StepName.BOUND]


def test_a_submission_is_compiled_on_it(tmp_path, linked):
    assert headers_read(tmp_path, linked) == ([HEADER], [])


def test_a_macro_that_the_headers_do_not_test_changes_nothing(tmp_path, linked):
    assert headers_read(tmp_path, linked, extra_cuda_cflags=["-DTILE=16"]) == ([HEADER], [])


def test_a_macro_that_the_headers_test_gets_the_text(tmp_path, linked):
    assert headers_read(tmp_path, linked, extra_cflags=["-DNDEBUG"]) == ([], [HEADER])


def syntax_errors(folder: Path, linked: dict[str, Path], **changes) -> str:
    step = bound_step(folder, linked, **changes)
    return subprocess.run([*step.argv, "-fsyntax-only"], cwd=folder, capture_output=True, text=True, check=False).stderr


@pytest.mark.parametrize(
    ("use", "name"),
    [("void f(py::object x) {}", "py"), ("auto f(at::TensorList x) { return device_of(x); }", "device_of")],
)
def test_declarations_that_only_later_steps_have_do_not_compile(tmp_path, linked, use, name):
    said = syntax_errors(tmp_path, linked, cpp_sources=[f"void launch(torch::Tensor x);\n{use}"])
    assert "error: " in said
    assert name in said


GUARD = "c10::OptionalDeviceGuard guard(device_of(x)), other(device_of(std::optional<at::Tensor>(x)));"
JOINS = f"void launch(torch::Tensor x);\nauto f(at::Tensor x) {{ {GUARD} return torch::cat({{x, x}}, 0); }}"
LIMITS = "__global__ void lowest(float* x) { x[threadIdx.x] = -FLT_MAX; }\n" + LAUNCH.replace("doubled", "lowest")


@pytest.mark.parametrize(
    "source", [{"cpp_sources": [JOINS]}, {"cuda_sources": [LIMITS]}], ids=["joined tensors and guards", "limits"]
)
def test_declarations_that_usual_submissions_need_compile(tmp_path, linked, source):
    assert "error" not in syntax_errors(tmp_path, linked, **source)
