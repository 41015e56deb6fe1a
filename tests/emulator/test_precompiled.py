"""The precompiled headers with the real compiler: taken where they fit, passed over where they do not."""

import subprocess
from pathlib import Path

import pytest

from evaluator.cache.build_cache import BuildCache
from evaluator.cache.location import cache_folder
from evaluator.compile.emulated.emulator_libraries import precompiled_headers
from evaluator.compile.emulated.precompiled_headers import PRECOMPILED
from evaluator.emulator.frontend.build_ladder import build_steps
from evaluator.emulator.frontend.front_end import front_end
from evaluator.protocol.frames import BuildRequest
from evaluator.sandbox import ToolResult
from evaluator.toolchain import host_compiler

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("clang" in host_compiler.cxx().version.lower(), reason="only g++ reads such a header"),
]

KERNEL = "__global__ void doubled(float* x) { if (threadIdx.x > 3) return; x[threadIdx.x] *= 2; }\n"
LAUNCH = "void launch(torch::Tensor x) { doubled<<<1, 32>>>(x.data_ptr<float>()); }\n"


def steps_of(request):
    return build_steps(request, front_end(request))


def run_tool(argv, *, work, timeout_s, limits, readable=()):
    done = subprocess.run(argv, cwd=work, capture_output=True, text=True, timeout=timeout_s, check=False)
    return ToolResult(
        exit_code=done.returncode, signal=None, timed_out=False, output=done.stdout + done.stderr, wall_s=0.0
    )


@pytest.fixture(scope="module")
def header() -> Path:
    """The kept one, where a grade has made it already: it takes half a minute."""
    made = precompiled_headers(run_tool, BuildCache(cache_folder()))
    assert made is not None
    return made


def headers_read(folder: Path, header: Path, **changes) -> tuple[list[str], list[str]]:
    """Compile an extension; give the precompiled headers that g++ took, and those that did not fit."""
    parts = {"cpp_sources": ["void launch(torch::Tensor x);"], "cuda_sources": [KERNEL + LAUNCH]} | changes
    step = steps_of(BuildRequest(name="ext", functions={"launch": "launch"}, with_cuda=True, **parts))[0]
    for name, text in step.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / PRECOMPILED).symlink_to(header)
    done = subprocess.run([*step.argv, "-H"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stderr.splitlines()
    return [line[2:] for line in lines if line.startswith("! ")], [line[2:] for line in lines if line.startswith("x ")]


def test_a_submission_is_compiled_on_it(tmp_path, header):
    assert headers_read(tmp_path, header) == ([PRECOMPILED], [])


def test_a_macro_that_the_headers_do_not_test_changes_nothing(tmp_path, header):
    assert headers_read(tmp_path, header, extra_cuda_cflags=["-DTILE=16"]) == ([PRECOMPILED], [])


def test_a_macro_that_the_headers_test_gets_the_text(tmp_path, header):
    assert headers_read(tmp_path, header, extra_cflags=["-DNDEBUG"]) == ([], [PRECOMPILED])
