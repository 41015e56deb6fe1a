"""Header libraries of CUDA builds: the include folder, the key of the cache, and the finding for a missing library."""

import os

import pytest

from evaluator.cache.build_cache import BuildCache
from evaluator.compile.cuda_builder import CudaBuilder, kernel_headers, missing_library
from evaluator.findings import Code
from evaluator.languages.registry import CUTLASS, found_installation
from evaluator.protocol.frames import BuildRequest, SourceFile
from tests.cuda_builds import ARCHITECTURE, has_nvcc, local_tool, stand_ins
from tests.unit.compile.tool_results import ended, error

NEEDS_NVCC = pytest.mark.skipif(not has_nvcc(), reason="there is no nvcc here")
NEEDS_CUTLASS = pytest.mark.skipif(
    found_installation(CUTLASS) is None, reason="CUTLASS is not installed: pip install nvidia-cutlass"
)
LAYOUT = """#include <cute/layout.hpp>
__global__ void count_kernel(float* out) {
  auto layout = cute::make_layout(cute::make_shape(4, 8));
  out[threadIdx.x] = float(cute::size(layout));
}
"""
REQUEST = BuildRequest(
    name="ext",
    cuda_sources=[LAYOUT],
    extra_include_paths=["own"],
    with_cuda=True,
    implicit_headers=False,
    python_module=False,
)


class Compiler:
    """A compiler that succeeds, or says what it is told to; keeps build files and readable folders."""

    def __init__(self, said=""):
        self._said = said
        self.build_files, self.readable = [], []

    def __call__(self, argv, *, work, timeout_s, limits, readable=()):
        self.build_files.append((work / "build.ninja").read_text())
        self.readable.append(list(readable))
        if not self._said:
            (work / "ext.so").write_bytes(b"library")
        return ended(bool(self._said), self._said)


@pytest.fixture
def built(named_compilers, tmp_path):
    def build(compiler, request=REQUEST):
        cache = BuildCache(tmp_path / "cache")
        builder = CudaBuilder(compiler, cache, LAYOUT, 30.0, lambda _: None, "90a", cache_root=tmp_path)
        return builder.build(request)

    return build


@pytest.fixture
def cutlass(monkeypatch, tmp_path):
    folder = tmp_path / "cutlass" / "include"
    (folder / "cutlass").mkdir(parents=True)
    (folder / "cutlass" / "version.h").write_text("#define CUTLASS_MAJOR 4\n")
    monkeypatch.setenv("CUTLASS_PATH", str(tmp_path / "cutlass"))
    return folder


def test_a_build_that_includes_a_library_gets_its_folder_last(built, cutlass):
    compiler = Compiler()
    assert built(compiler).library == b"library"
    assert f"-Iown -I{cutlass}" in compiler.build_files[0]
    assert compiler.readable == [[cutlass]]
    plain = Compiler()
    built(plain, BuildRequest(name="ext", cuda_sources=["__global__ void k() {}"], with_cuda=True))
    assert str(cutlass) not in plain.build_files[0]
    assert plain.readable == [[]]


def test_a_changed_header_is_another_build(built, cutlass):
    first = built(Compiler())
    assert built(Compiler()).unit.cached
    header = cutlass / "cutlass" / "version.h"
    os.utime(header, ns=(1, 1))
    second = built(Compiler())
    assert not second.unit.cached
    assert second.unit.key != first.unit.key


def test_headers_beside_the_sources_count_too(cutlass):
    header = SourceFile(name="tile.cuh", text="#pragma once\n#  include <cutlass/numeric_types.h>\n")
    request = BuildRequest(name="ext", files=[SourceFile(name="a.cu", text='#include "tile.cuh"')], headers=[header])
    assert kernel_headers(request).folders == [cutlass]
    assert kernel_headers(BuildRequest(name="ext")) == ([], [])


def including(*paths, headers=()):
    text = "\n".join(f"#include <{path}>" for path in paths)
    files = [SourceFile(name=name, text="") for name in headers]
    return BuildRequest(name="ext", cuda_sources=[text], with_cuda=True, headers=files)


@pytest.mark.parametrize(
    "said",
    ["cute/layout.hpp: No such file or directory", 'cannot open source file "cute/layout.hpp"'],
)
def test_a_missing_library_is_named_with_its_command(monkeypatch, tmp_path, said):
    monkeypatch.setenv("CUTLASS_PATH", str(tmp_path))
    found = missing_library(
        [error("'x' was not declared"), error(said, submission_line=1)], including("cute/layout.hpp")
    )
    assert (found.code, found.line, found.details) == (Code.LANGUAGE_MISSING, 1, {"package": "cutlass"})
    assert "pip install nvidia-cutlass" in found.message


@pytest.mark.parametrize("said", ["tile.cuh: No such file or directory", "'cute/x.hpp' is wrong", ""])
def test_any_other_error_is_the_submissions_own(monkeypatch, tmp_path, said):
    monkeypatch.setenv("CUTLASS_PATH", str(tmp_path))
    assert missing_library([error(said)], including("tile.cuh", "cute/x.hpp")) is None


@pytest.mark.parametrize(
    ("said", "request_"),
    [
        ("prototype.cuh", including("prototype.cuh", headers=["own/prototype.cuh"])),
        ("kittens/tiles.cuh", including("kittens/tiles.cuh", headers=["kittens/tile.cuh"])),
        ("kittens/tiles.cuh", including("kittens/tiles.cuh", headers=["src/kittens/tile.cuh"])),
        ("cute/layout.hpp", including("vector")),
        ('#error "cute/layout.hpp', including("cute/layout.hpp")),
    ],
    ids=["own name", "own folder", "own deeper folder", "not included", "forged"],
)
def test_an_error_about_a_header_of_the_submissions_own_is_its_own(monkeypatch, tmp_path, said, request_):
    for variable in ("CUTLASS_PATH", "THUNDERKITTENS_ROOT"):
        monkeypatch.setenv(variable, str(tmp_path))
    assert missing_library([error(f"{said}: No such file or directory")], request_) is None


def test_a_header_that_an_installed_library_lacks_is_the_submissions_own(cutlass):
    assert (
        missing_library([error("cute/no_such.hpp: No such file or directory")], including("cute/no_such.hpp")) is None
    )


def test_a_missing_library_ends_the_build_at_the_first_step(monkeypatch, tmp_path, built):
    monkeypatch.setenv("CUTLASS_PATH", str(tmp_path))
    compiler = Compiler("cuda.cu:1:10: fatal error: cute/layout.hpp: No such file or directory\n")
    result = built(compiler)
    assert (result.library, result.finding.code, result.finding.line) == (None, Code.LANGUAGE_MISSING, 1)
    assert len(compiler.build_files) == 1


@pytest.mark.slow
@NEEDS_NVCC
@NEEDS_CUTLASS
def test_nvcc_compiles_cute(tmp_path):
    cache = BuildCache(tmp_path / "cache")
    tool = local_tool(stand_ins(tmp_path / "stand_ins"))
    builder = CudaBuilder(tool, cache, LAYOUT, 300.0, lambda _: None, ARCHITECTURE, cache_root=tmp_path)
    result = builder.build(REQUEST)
    assert result.finding is None
    assert result.library.startswith(b"\x7fELF")
