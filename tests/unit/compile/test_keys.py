"""Keys of builds of several files: everything that may change the library is part of the key, on each device."""

import pytest
from msgspec.structs import replace

from evaluator.cache.build_cache import BuildCache
from evaluator.compile.builder import CpuBuilder
from evaluator.compile.cuda_builder import CudaBuilder
from evaluator.compile.emulated_builder import EmulatedBuilder
from evaluator.protocol.frames import BuildRequest, SourceFile
from evaluator.sandbox import ToolResult
from evaluator.toolchain import host_compiler, nvcc
from evaluator.toolchain.host_compiler import InstalledTool

REQUEST = BuildRequest(
    name="ext",
    files=[SourceFile("a.cpp", "int a;"), SourceFile("csrc/b.cpp", "int b;")],
    headers=[SourceFile("tile.h", "int t;"), SourceFile("csrc/size.h", "int s;")],
    extra_include_paths=["."],
)
FILES, HEADERS = REQUEST.files, REQUEST.headers
OTHERS = {
    "a source": replace(REQUEST, files=[replace(FILES[0], text="int c;"), FILES[1]]),
    "a source's name": replace(REQUEST, files=[replace(FILES[0], name="c.cpp"), FILES[1]]),
    "a source's folder": replace(REQUEST, files=[FILES[0], replace(FILES[1], name="b.cpp")]),
    "the order of the sources": replace(REQUEST, files=FILES[::-1]),
    "texts that changed places": replace(
        REQUEST, files=[replace(FILES[0], text=FILES[1].text), replace(FILES[1], text=FILES[0].text)]
    ),
    "one source fewer": replace(REQUEST, files=FILES[:1]),
    "text moved to another source": replace(
        REQUEST, files=[replace(FILES[0], text="int a;int b;"), replace(FILES[1], text="")]
    ),
    "a header": replace(REQUEST, headers=[replace(HEADERS[0], text="int u;"), HEADERS[1]]),
    "a header's name": replace(REQUEST, headers=[replace(HEADERS[0], name="u.h"), HEADERS[1]]),
    "headers that changed places": replace(
        REQUEST, headers=[replace(HEADERS[0], text=HEADERS[1].text), replace(HEADERS[1], text=HEADERS[0].text)]
    ),
    "a header that is a source": replace(REQUEST, files=[*FILES, HEADERS[0]], headers=HEADERS[1:]),
    "a compiler's flag": replace(REQUEST, extra_cflags=["-O2"]),
    "a linker's flag": replace(REQUEST, extra_ldflags=["-lm"]),
    "a folder of headers": replace(REQUEST, extra_include_paths=["csrc"]),
    "the name": replace(REQUEST, name="other"),
}


def refused(*_, **__):
    return ToolResult(exit_code=1, signal=None, timed_out=False, output="", wall_s=0.0)


@pytest.fixture(params=["cpu", "cuda", "emulated"])
def key_of(request, tmp_path, monkeypatch):
    """The key of a build on a device. The compilers are functions of the test."""
    monkeypatch.setattr(host_compiler, "cxx", lambda: InstalledTool("/usr/bin/g++", "g++ 1.0"))
    monkeypatch.setattr(host_compiler, "ninja", lambda: "/usr/bin/ninja")
    monkeypatch.setattr(nvcc, "nvcc", lambda: InstalledTool("/cuda/bin/nvcc", "Build cuda_13.0.r13.0/compiler.1"))
    monkeypatch.setattr(nvcc, "cuda_home", lambda: tmp_path / "cuda")
    cache = BuildCache(tmp_path)
    match request.param:
        case "cpu":
            builder = CpuBuilder(refused, cache, "", 30.0)
        case "cuda":
            builder = CudaBuilder(refused, cache, "", 30.0, lambda _: None, "90a", cache_root=tmp_path)
        case _:
            builder = EmulatedBuilder(refused, cache, "", 30.0, lambda _: "not read")
    return lambda wanted: builder.build(wanted).unit.key


def test_two_folders_that_differ_share_no_build(key_of):
    keys = {what: key_of(other) for what, other in OTHERS.items()}
    assert key_of(REQUEST) not in keys.values()
    assert len(set(keys.values())) == len(OTHERS)
    assert key_of(REQUEST) == key_of(replace(REQUEST))


def test_flags_of_nvcc_are_part_of_the_key_where_nvcc_builds(key_of, request):
    differ = key_of(REQUEST) != key_of(replace(REQUEST, extra_cuda_cflags=["-O2"]))
    assert differ is (request.node.callspec.params["key_of"] != "cpu")
