"""From a build to the card: a stand-in for cuobjdump reads a library in the compilers' sandbox, beside the grade."""

from functools import partial
from types import SimpleNamespace

import pytest

from evaluator.cache.build_cache import BuildCache
from evaluator.compile import disassembly
from evaluator.compile.builder import BuildResult
from evaluator.compile.disassembly import read_machine_code
from evaluator.findings import Code
from evaluator.judge.context.grade_context import BuildServices
from evaluator.judge.exhibits.reduced_instructions import about_machine_code
from evaluator.judge.runners.fork_servers import SandboxedTools
from evaluator.protocol.frames import BuildRequest
from evaluator.records import BuildUnit, DeviceKind, Precision
from evaluator.toolchain import nvcc
from evaluator.toolchain.host_compiler import InstalledTool
from tests.unit.compile.test_sass import RECORDED

LIBRARY = b"\x7fELF\x02\x01 .nv_fatbin"


class Builder:
    """Builds the same library for every request."""

    def build(self, request):
        unit = BuildUnit(request.name, "0" * 64, ok=True, cached=False, wall_s=0.0, diagnostics=[], log="")
        return BuildResult(unit=unit, library=LIBRARY, finding=None)


@pytest.fixture
def built(full, tmp_path, monkeypatch):
    """Build a library with a toolkit whose disassembler is a script, and give its machine code."""
    programs = tmp_path / "toolkit" / "bin"
    programs.mkdir(parents=True)
    monkeypatch.setattr(nvcc, "cuda_home", lambda: tmp_path / "toolkit")
    monkeypatch.setattr(disassembly, "cuobjdump", lambda: InstalledTool(str(programs / "cuobjdump"), "13.0"))
    made = []

    def build(script):
        (programs / "cuobjdump").write_text(f"#!/bin/sh\n{script}\n")
        (programs / "cuobjdump").chmod(0o755)
        (programs / "listing").write_text((RECORDED / "tensor_cores.sass").read_text())
        run_tool, cache = SandboxedTools(full, DeviceKind.CUDA), BuildCache(tmp_path / "cache")
        disassemble = partial(read_machine_code, run_tool=run_tool, cache=cache)
        services = BuildServices(SimpleNamespace(builder_of=lambda _: Builder()), "", 60.0, None, disassemble)
        made.append(services)
        services.for_submission().serve(BuildRequest(name="mine", cpp_sources=["int f();"]))
        return services.machine_code()

    yield build
    for each in made:
        each.close(full.end_all)


def test_the_instructions_of_a_built_library_are_a_finding(built):
    code = built('grep -q nv_fatbin library.so && cat "${0%/*}/listing"')
    assert code.not_looked_at is None
    (said,) = about_machine_code(code, Precision.FP32)
    assert said.code == Code.REDUCED_INSTRUCTIONS.value
    assert "HMMA.1684.F32.TF32 (4) in gemm_tf32" in said.message


def test_endless_output_ends_at_the_size_limit(built):
    code = built("exec cat /dev/zero")
    assert code.not_looked_at == "the disassembly exceeds 64 MiB"
    assert about_machine_code(code, Precision.FP32) == []
