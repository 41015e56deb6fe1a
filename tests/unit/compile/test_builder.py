"""Building an extension, with a compiler that is a function of the test."""

import os
import socket
from pathlib import Path

import pytest
from msgspec.structs import replace

from evaluator.cache.build_cache import BuildCache
from evaluator.compile.builder import CpuBuilder, work_folder
from evaluator.errors import JudgeFailed
from evaluator.findings import Code
from evaluator.protocol.frames import BuildRequest, SourceFile
from tests.unit.compile.tool_results import ended

pytestmark = pytest.mark.usefixtures("named_compilers")

SUBMISSION = 'source = """\nint f() {\n    return 1\n}\n"""\n'
REQUEST = BuildRequest(name="ext", cpp_sources=["\nint f() {\n    return 1\n}\n"], functions={"f": "f"})
LIBRARY = b"\x7fELF library"


class Tool:
    """Stands in for the sandboxed compiler: writes what a test says and remembers what it was asked."""

    def __init__(self, write=None, **changes):
        self.calls = []
        self._write = write or (lambda path: path.write_bytes(LIBRARY))
        self._result = ended(**changes)

    def __call__(self, argv, *, work, timeout_s, limits, readable=()):
        files = {path.name: path.read_text() for path in work.iterdir()}
        self.calls.append((list(argv), files, timeout_s))
        self._write(work / "ext.so")
        return self._result


@pytest.fixture
def made(tmp_path):
    return lambda tool: CpuBuilder(tool, BuildCache(tmp_path), SUBMISSION, 30.0)


def test_a_build_gives_the_library(made):
    tool = Tool(output="main.cpp:3:1: warning: unused\n")
    built = made(tool).build(REQUEST)
    assert built.library == LIBRARY
    assert built.finding is None
    assert (built.unit.name, built.unit.ok, built.unit.cached, built.unit.wall_s) == ("ext", True, False, 1.0)
    ((argv, files, timeout_s),) = tool.calls
    assert argv[:3] == ["/usr/bin/ninja", "-f", "build.ninja"]
    assert timeout_s == 30.0
    assert set(files) == {"build.ninja", "main.cpp"}
    assert REQUEST.cpp_sources[0] in files["main.cpp"]
    assert 'm.def("f", torch::wrap_pybind_function(f), "f");' in files["main.cpp"]


def test_a_second_build_compiles_nothing(made):
    tool = Tool(output="main.cpp:4:1: warning: unused\n")
    first, second = made(tool).build(REQUEST), made(tool).build(REQUEST)
    assert len(tool.calls) == 1
    assert second.library == LIBRARY
    assert second.unit.cached
    assert second.unit.key == first.unit.key
    assert second.unit.wall_s == 0
    assert second.unit.diagnostics == first.unit.diagnostics
    assert second.unit.log == first.unit.log


def refused(made, **changes):
    tool = Tool()
    built = made(tool).build(replace(REQUEST, **changes))
    assert tool.calls == []
    assert built.library is None
    assert not built.unit.ok
    assert len(built.finding.message) < 1000
    assert len(built.unit.name) <= 200
    return built.finding.code


@pytest.mark.parametrize("flag", ["-fplugin=x", "-B/tmp", "@x", "-o", "-O3 -fplugin=x", "-O3\n-B/tmp", "-Wl,-T,x"])
def test_flags_are_refused_before_anything_is_compiled(made, flag):
    assert refused(made, extra_cflags=["-O3", flag]) == Code.FLAG_REFUSED.value
    assert refused(made, extra_ldflags=["-lm", flag]) == Code.FLAG_REFUSED.value
    assert refused(made, extra_include_paths=[f"/tmp {flag}"]) == Code.FLAG_REFUSED.value


@pytest.mark.parametrize("path", [" ", "x -B/tmp", "x\n", "$HOME", "a,b"])
def test_include_paths_are_one_word(made, path):
    code = refused(made, extra_include_paths=[path])
    assert code == Code.FLAG_REFUSED.value


def test_empty_and_joined_flags_are_what_they_are_in_pytorch(made):
    tool = Tool()
    request = replace(REQUEST, extra_cflags=["", "-O3 -Wall "], extra_ldflags=[""], extra_include_paths=[""])
    assert made(tool).build(request).library == LIBRARY
    ((_, files, _),) = tool.calls
    (line,) = [line for line in files["build.ninja"].split("\n") if line.startswith("cflags")]
    assert line.endswith(" -O3 -Wall")


def test_cuda_is_not_for_this_device(made):
    assert refused(made, cuda_sources=["__global__ void k();"]) == Code.NOT_ON_THIS_DEVICE.value
    assert refused(made, with_cuda=True) == Code.NOT_ON_THIS_DEVICE.value


@pytest.mark.parametrize(
    "name", ["", "a b", "../x", "a/b", "x.so", "1x", "a\n", "é", "$x", "x" * 230, "a" * 60_000, "-o"]
)
def test_a_name_is_an_identifier(made, name):
    assert refused(made, name=name) == Code.BUILD_REQUEST_REFUSED.value
    assert refused(made, name=name, with_cuda=True) == Code.BUILD_REQUEST_REFUSED.value


HOSTILE_FILES = {
    "above": ["../main.cpp"],
    "absolute": ["/tmp/main.cpp"],
    "dots": [".."],
    "nothing": [""],
    "a suffix alone": [".cpp"],
    "hidden": [".x.cpp"],
    "a flag": ["-wrapper.cpp"],
    "another flag": ["--param.cpp"],
    "a response file": ["@x.cpp"],
    "white space": ["a b.cpp"],
    "a newline": ["a.cpp\n"],
    "a newline inside": ["a\nb.cpp"],
    "NUL": ["a\0.cpp"],
    "a variable": ["$in.cpp"],
    "a colon": ["a:b.cpp"],
    "a pipe": ["a|b.cpp"],
    "the build file": ["build.ninja"],
    "the library": ["ext.so"],
    "an object": ["0_main.cpp.o"],
    "a header": ["main.h"],
    "cuda": ["main.cu"],
    "assembler": ["main.S"],
    "no suffix": ["main"],
    "twice": ["main.cpp", "main.cpp"],
    "a folder above": ["csrc/../../main.cpp"],
    "another file's folder": ["a.cpp", "a.cpp/b.cpp"],
    "many folders": ["a/b/c/d/e.cpp"],
    "letters of two bytes": ["é" * 190 + ".cpp"],
    "too long": ["x" * 300 + ".cpp"],
    "60 000 letters": ["x" * 60_000 + ".cpp"],
    "256 long ones": [f"{n}" * 10_000 for n in range(256)],
}


@pytest.mark.parametrize("names", HOSTILE_FILES.values(), ids=HOSTILE_FILES)
def test_a_hostile_file_name_is_refused(made, names):
    files = [SourceFile(name=name, text="") for name in names]
    assert refused(made, files=files) == Code.BUILD_REQUEST_REFUSED.value


def test_the_longest_file_name_can_be_written(made):
    files = [SourceFile(name="x" * 96 + ".cpp", text=""), SourceFile(name="b+1.c-d_e.cc", text="")]
    tool = Tool()
    assert made(tool).build(replace(REQUEST, files=files)).library == LIBRARY
    assert {file.name for file in files} < set(tool.calls[0][1])


def test_more_source_than_anyone_writes_is_refused(made):
    assert refused(made, cpp_sources=["é" * (2 << 20), "x"]) == Code.BUILD_REQUEST_REFUSED.value


def failed(made, tool, request=REQUEST):
    built = made(tool).build(request)
    assert built.library is None
    assert not built.unit.ok
    return built


def test_an_error_is_told_with_the_submissions_line(made):
    tool = Tool(exit_code=1, output="main.cpp:4:13: error: expected ';'\nmain.cpp:5:1: error: and another\n")
    built = failed(made, tool)
    assert built.finding.code == Code.COMPILE_FAILED.value
    assert built.finding.line == 3
    assert "expected ';'" in built.finding.message
    assert built.finding.details["errors"] == 2
    assert len(built.unit.diagnostics) == 2


def test_a_failure_is_not_kept(made):
    failed(made, Tool(exit_code=1))
    tool = Tool()
    assert made(tool).build(REQUEST).library == LIBRARY
    assert len(tool.calls) == 1


@pytest.mark.parametrize(
    "how",
    [
        {"exit_code": None, "signal": "SIGKILL"},
        {"exit_code": 1, "output": "g++: fatal error: Killed signal terminated program cc1plus\n"},
        {"exit_code": 1, "output": "collect2: fatal error: ld terminated with signal 9 [Killed]\n"},
        {"exit_code": 1, "output": "nvcc error   : 'cicc' died due to signal 9 (Kill signal)\n"},
    ],
)
def test_a_compiler_that_was_killed_is_told_from_one_that_says_no(made, how):
    assert failed(made, Tool(**how)).finding.details["killed"] is True


def test_a_compiler_that_says_nothing_is_told_by_its_last_line_or_its_exit_code(made):
    said = failed(made, Tool(exit_code=2, output="one\ntwo\n\n")).finding
    assert (said.message[-3:], said.details["killed"]) == ("two", False)
    assert "2" in failed(made, Tool(exit_code=2)).finding.message
    assert len(failed(made, Tool(exit_code=2, output="x" * 60_000)).finding.message) < 1000


@pytest.mark.parametrize("exit_code", [None, 0])
def test_a_compiler_that_runs_too_long_is_a_timeout_whatever_it_left(made, exit_code):
    built = failed(made, Tool(timed_out=True, exit_code=exit_code, output="main.cpp:4:13: error: expected ';'"))
    assert built.finding.code == Code.COMPILER_TIMED_OUT.value
    assert "30 s" in built.finding.message


def _bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))


WRONG_KINDS = {
    "nothing": lambda path: None,
    "a link to a file": lambda path: path.symlink_to("/etc/passwd"),
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
    "a pipe": os.mkfifo,
    "a folder": lambda path: path.mkdir(),
    "a socket": _bind,
    "an unreadable file": lambda path: (path.write_bytes(b"x"), path.chmod(0)) if os.geteuid() else None,
    "a huge file": lambda path: (path.touch(), os.truncate(path, (512 << 20) + 1)),
}


@pytest.mark.parametrize("write", WRONG_KINDS.values(), ids=WRONG_KINDS)
def test_what_is_no_plain_file_of_sane_size_is_no_library(made, write):
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert failed(made, Tool(write)).finding.code == Code.COMPILE_FAILED.value
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_full_disk_is_the_judges_failure(made, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(JudgeFailed, match="No space left"):
        made(Tool()).build(REQUEST)


def test_the_work_folder_is_private_and_goes_away():
    with work_folder() as work:
        assert work.parent.stat().st_mode & 0o777 == 0o711
        (work / "file").touch()
    assert not work.parent.exists()


def test_nothing_of_a_build_stays_behind(made, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made(Tool()).build(REQUEST)
    failed(made, Tool(exit_code=1), BuildRequest(name="ext"))
    assert sorted(path.name for path in tmp_path.iterdir()) == [".trimmed", "builds"]
