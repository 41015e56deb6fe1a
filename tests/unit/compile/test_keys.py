"""Keys of builds: everything that may change the library is part of the key, on each device."""

import pytest
from msgspec.structs import replace

from evaluator.cache.build_cache import BuildCache
from evaluator.compile.builder import CpuBuilder
from evaluator.compile.cuda_builder import CudaBuilder
from evaluator.compile.emulated_builder import EmulatedBuilder
from evaluator.protocol.frames import BuildRequest, SourceFile
from evaluator.toolchain import host_compiler

pytestmark = pytest.mark.usefixtures("named_compilers")

FILES = [SourceFile("a.cpp", "int a;"), SourceFile("csrc/b.cpp", "int b;")]
HEADERS = [SourceFile("tile.h", "int t;"), SourceFile("csrc/size.h", "int s;")]
FOLDER = BuildRequest(name="ext", files=FILES, headers=HEADERS, extra_include_paths=["."])
OTHER_FOLDERS = {
    "a source": {"files": [replace(FILES[0], text="int c;"), FILES[1]]},
    "a source's name": {"files": [replace(FILES[0], name="c.cpp"), FILES[1]]},
    "a source's folder": {"files": [FILES[0], replace(FILES[1], name="b.cpp")]},
    "the order of the sources": {"files": FILES[::-1]},
    "texts that changed places": {
        "files": [replace(FILES[0], text=FILES[1].text), replace(FILES[1], text=FILES[0].text)]
    },
    "one source fewer": {"files": FILES[:1]},
    "text moved to another source": {"files": [replace(FILES[0], text="int a;int b;"), replace(FILES[1], text="")]},
    "a header": {"headers": [replace(HEADERS[0], text="int u;"), HEADERS[1]]},
    "a header's name": {"headers": [replace(HEADERS[0], name="u.h"), HEADERS[1]]},
    "headers that changed places": {
        "headers": [replace(HEADERS[0], text=HEADERS[1].text), replace(HEADERS[1], text=HEADERS[0].text)]
    },
    "a header that is a source": {"files": [*FILES, HEADERS[0]], "headers": HEADERS[1:]},
    "a compiler's flag": {"extra_cflags": ["-O2"]},
    "a linker's flag": {"extra_ldflags": ["-lm"]},
    "a folder of headers": {"extra_include_paths": ["csrc"]},
    "the name": {"name": "other"},
}
INLINE = BuildRequest(
    name="ext", cpp_sources=["int f();\nint g();\n"], cuda_sources=["int f() { return 1; }"], functions={"f": "f"}
)
OTHER_STRINGS = {
    "the C++": {"cpp_sources": ["int g();"]},
    "strings cut elsewhere": {"cpp_sources": ["int f();\n", "int g();\n"]},
    "the CUDA": {"cuda_sources": ["int f() { return 2; }"]},
    "a function's description": {"functions": {"f": "what it does"}},
    "no functions": {"functions": None},
    "the handling of errors": {"error_handling": False},
    "the first lines": {"implicit_headers": False},
    "files": {"files": FILES},
}


@pytest.fixture(params=["cpu", "cuda", "emulated"])
def key_of(request, tmp_path):
    cache = BuildCache(tmp_path)
    match request.param:
        case "cpu":
            return CpuBuilder(None, cache, "", 30.0).key
        case "cuda":
            return CudaBuilder(None, cache, "", 30.0, lambda _: None, "90a", cache_root=tmp_path).key
        case _:
            return EmulatedBuilder(None, cache, "", 30.0, lambda _: "not read").key


@pytest.mark.parametrize(("wanted", "others"), [(FOLDER, OTHER_FOLDERS), (INLINE, OTHER_STRINGS)])
def test_two_requests_that_differ_share_no_build(key_of, wanted, others):
    keys = {what: key_of(replace(wanted, **change)) for what, change in others.items()}
    assert key_of(wanted) not in keys.values()
    assert len(set(keys.values())) == len(others)
    assert key_of(wanted) == key_of(replace(wanted))


def test_flags_of_nvcc_are_part_of_the_key_where_nvcc_builds(key_of, request):
    differ = key_of(FOLDER) != key_of(replace(FOLDER, extra_cuda_cflags=["-O2"]))
    assert differ is (request.node.callspec.params["key_of"] != "cpu")


@pytest.mark.parametrize("field", ["compiler", "torch", "python", "machine"])
def test_another_machine_has_other_keys(key_of, monkeypatch, field):
    first, fingerprint = key_of(INLINE), host_compiler.fingerprint()
    monkeypatch.setattr(host_compiler, "fingerprint", lambda: fingerprint | {field: "another"})
    assert key_of(INLINE) != first


def test_another_gpu_has_other_keys(tmp_path):
    def key(architecture):
        builder = CudaBuilder(None, BuildCache(tmp_path), "", 30.0, lambda _: None, architecture, cache_root=tmp_path)
        return builder.key(INLINE)

    assert key("80") != key("90a")
