"""Disassembly of a built library: one run for each content, in a sandbox, and a reason where it fails."""

import subprocess

import pytest

from evaluator.cache.build_cache import BuildCache
from evaluator.catalog import find_problem
from evaluator.compile import disassembly
from evaluator.compile.disassembly import machine_code, read_machine_code
from evaluator.cuda_source.edits import device_code
from evaluator.cuda_source.source_files import source_files
from evaluator.judge.exhibits.reduced_instructions import about_machine_code
from evaluator.paths import data_dir
from evaluator.records import MachineCode
from evaluator.toolchain import nvcc
from evaluator.toolchain.host_compiler import InstalledTool, language_standard
from evaluator.toolchain.nvcc import cuobjdump
from tests.cuda_builds import ARCHITECTURE, has_nvcc, local_tool, requests_of
from tests.unit.compile.test_sass import RECORDED
from tests.unit.compile.tool_results import ended

LIBRARY = b"\x7fELF\x02\x01 .nv_fatbin"
HOST_ONLY = b"\x7fELF\x02\x01 .text"
TEXT = (RECORDED / "tensor_cores.sass").read_text()


@pytest.fixture
def disassembler(tmp_path, monkeypatch):
    """A program in the place of cuobjdump; `script` is what it does."""

    def install(script, version="release 13.0"):
        program = tmp_path / "cuobjdump"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setattr(disassembly, "cuobjdump", lambda: InstalledTool(str(program), version))

    return install


class Tool:
    """Runs programs without a sandbox, and counts them."""

    def __init__(self):
        self.calls = []

    def __call__(self, argv, *, work, timeout_s, limits):
        self.calls.append((argv, timeout_s, limits))
        assert (work / "library.so").read_bytes().startswith(b"\x7fELF")
        return local_tool({})(argv, work=work, timeout_s=timeout_s, limits=limits)


def read(tool, tmp_path, library=LIBRARY):
    return read_machine_code(library, tool, BuildCache(tmp_path / "cache"), 7.0)


def test_a_library_is_disassembled_once_for_each_content_and_disassembler(disassembler, tmp_path):
    disassembler(f"[ $# = 2 ] && [ $1 = -sass ] && [ -f $2 ] && cat '{RECORDED}/tensor_cores.sass'")
    tool = Tool()
    code = read(tool, tmp_path)
    assert [kernel.name for kernel in code.reduced] == ["gemm_tf32"]
    assert (code.kernels, code.not_looked_at) == (1, None)
    assert read(tool, tmp_path) == code
    assert len(tool.calls) == 1
    read(tool, tmp_path, LIBRARY + b"another")
    disassembler(f"cat '{RECORDED}/honest.sass'", version="release 13.1")
    assert read(tool, tmp_path) == MachineCode(kernels=2)
    assert len(tool.calls) == 3


def test_time_and_size_are_limited(disassembler, tmp_path):
    disassembler(f"cat '{RECORDED}/honest.sass'")
    tool = Tool()
    read(tool, tmp_path)
    (_, timeout_s, limits) = tool.calls[0]
    assert timeout_s == 7.0
    assert (limits.file_bytes, limits.work_bytes) == (64 << 20, 256 << 20)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 'cuobjdump fatal : no nvdisasm' >&2; exit 1", "cuobjdump failed: cuobjdump fatal : no nvdisasm"),
        (f"cat '{RECORDED}/tensor_cores.sass'; kill -9 $$", "cuobjdump failed: ended with -9"),
        ("truncate -s 64M listing.sass; exit 1", "the disassembly exceeds 64 MiB"),
        ("echo nothing", "cuobjdump shows no kernel of a library with device code"),
    ],
)
def test_a_failure_is_a_reason_that_no_cache_keeps(disassembler, tmp_path, script, why):
    disassembler(script)
    tool = Tool()
    assert read(tool, tmp_path) == MachineCode(not_looked_at=why)
    disassembler(f"cat '{RECORDED}/honest.sass'")
    assert read(tool, tmp_path) == MachineCode(kernels=2)


def test_a_stopped_disassembler_shows_nothing(disassembler, tmp_path):
    disassembler("")

    def slow(argv, *, work, timeout_s, limits):
        (work / "listing.sass").write_text(TEXT)
        return ended(None, timed_out=True)

    assert read(slow, tmp_path) == MachineCode(not_looked_at="cuobjdump was stopped at its time limit")


def test_a_listing_that_is_a_link_is_not_followed(disassembler, tmp_path):
    disassembler(f"ln -sf '{RECORDED}/tensor_cores.sass' listing.sass")
    why = "cuobjdump shows no kernel of a library with device code"
    assert read(Tool(), tmp_path) == MachineCode(not_looked_at=why)


def test_without_cuobjdump_or_device_code_nothing_runs(monkeypatch, tmp_path):
    monkeypatch.setattr(disassembly, "cuobjdump", lambda: None)
    tool = Tool()
    assert read(tool, tmp_path) == MachineCode(not_looked_at="cuobjdump not found beside nvcc")
    assert read(tool, tmp_path, HOST_ONLY) == MachineCode()
    assert tool.calls == []


def test_cuobjdump_is_found_beside_nvcc_alone(monkeypatch, tmp_path):
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setattr(nvcc, "cuda_home", lambda: tmp_path)
    cuobjdump.cache_clear()
    assert cuobjdump() is None
    program = folder / "cuobjdump"
    program.write_text("#!/bin/sh\necho 'cuobjdump: NVIDIA'\necho 'Build cuda_13.0'\n")
    program.chmod(0o755)
    cuobjdump.cache_clear()
    assert cuobjdump() == InstalledTool(str(program), "Build cuda_13.0")
    cuobjdump.cache_clear()


@pytest.mark.slow
@pytest.mark.skipif(not has_nvcc(), reason="there is no nvcc here")
def test_compiled_kernels_are_read_by_the_toolkits_own_disassembler(tmp_path):
    if cuobjdump() is None:
        pytest.skip("there is no cuobjdump beside nvcc")
    flags = [f"-arch=sm_{ARCHITECTURE}", "-shared", "-Xcompiler=-fPIC"]
    library = tmp_path / "kernels.so"
    subprocess.run([nvcc.nvcc().path, *flags, RECORDED / "kernels.cu", "-o", library], check=True)
    code = read(Tool(), tmp_path, library.read_bytes())
    assert code.not_looked_at is None
    assert {(kernel.name, kernel.other_dtype) for kernel in code.reduced} == {
        ("gemm_tf32", False),
        ("hidden_half", False),
        ("hidden_bf16", False),
        ("scale", True),
    }
    assert code.kernels == 7


PRELUDE = "".join(f"#include <{name}>\n" for name in ("algorithm", "cfloat", "cmath", "cstdint", "limits"))
SOLUTIONS = sorted(data_dir("solutions").glob("*/cuda_*.py"))


@pytest.mark.slow
@pytest.mark.skipif(not has_nvcc(), reason="there is no nvcc here")
@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.parent.name)
def test_no_shipped_solution_is_accused(path, tmp_path):
    """Templates are left out: the launches that make instances of them are in code that needs PyTorch."""
    tool = cuobjdump()
    if tool is None:
        pytest.skip("there is no cuobjdump beside nvcc")
    _, requests = requests_of(path, tmp_path)
    files = [file for request in requests for file in source_files(request) if file.name.endswith(".cu")]
    kernels = 0
    for text in filter(None, (device_code(file.text) for file in files)):
        (tmp_path / "kernels.cu").write_text(PRELUDE + text)
        flags = [f"-arch=sm_{ARCHITECTURE}", f"-std={language_standard()}", *nvcc.PYTORCH_NVCC_FLAGS]
        command = [nvcc.nvcc().path, "-cubin", *flags, "kernels.cu", "-o", "kernels.cubin"]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
        listing = subprocess.run([tool.path, "-sass", "kernels.cubin"], cwd=tmp_path, check=True, capture_output=True)
        code = machine_code(listing.stdout.decode())
        kernels += code.kernels
        problem = find_problem(path.parent.name)
        assert about_machine_code(code, problem.precision, problem.formats) == []
    assert kernels > 0 or "template" in path.read_text()
