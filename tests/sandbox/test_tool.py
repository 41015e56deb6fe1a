"""Compilers and other programs in the sandbox."""

import os
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from evaluator.compile.builder import SUBMISSION_LIMITS, compile_failure
from evaluator.errors import JudgeFailed
from evaluator.findings import Code
from evaluator.records import BuildUnit
from evaluator.sandbox import Limits, run_tool, tool
from evaluator.toolchain import nvcc
from tests.cuda_builds import ARCHITECTURE, has_nvcc


@pytest.fixture
def work(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def test_a_program_writes_into_its_folder_and_the_judge_owns_it(fork_server, work):
    result = run_tool(
        fork_server,
        ["/bin/sh", "-c", "mkdir a; echo made > a/b; ln -s /etc/shadow a/c; pwd; echo $PATH"],
        work=work,
        timeout_s=60,
    )
    assert result.ok
    assert result.output == f"{work}\n{sys.prefix}/bin:/usr/bin:/bin\n"
    assert (work / "a/b").read_text() == "made\n"
    assert {path.lstat().st_uid for path in (work, *work.rglob("*"))} == {os.geteuid()}
    if os.geteuid() == 0:
        assert Path("/etc/shadow").stat().st_uid == 0


@pytest.mark.slow
@pytest.mark.skipif(not has_nvcc(), reason="there is no nvcc here")
def test_both_front_ends_of_nvcc_run_at_the_same_time(fork_server, work):
    (work / "a.cu").write_text("namespace { __global__ void k() {} }\nvoid f() { k<<<1, 1>>>(); }\n")
    command = [nvcc.nvcc().path, *nvcc.device_flags(ARCHITECTURE), "-no-compress", "-c", "a.cu", "-o", "a.o"]
    (work / "nvcc.sh").write_bytes(nvcc.FRONT_ENDS.read_bytes())
    result = run_tool(fork_server, ["/bin/sh", "nvcc.sh", "a.o", *command], work=work, timeout_s=300)
    assert result.ok, result.output
    assert (result.output, sorted(path.name for path in work.iterdir())) == ("", ["a.cu", "a.o", "nvcc.sh"])
    assert b"_GLOBAL__N__warpgrade_" in (work / "a.o").read_bytes()


def test_a_compiler_runs(fork_server, work):
    (work / "a.cpp").write_text('#include <vector>\nextern "C" int f() { return std::vector<int>{41}.size(); }\n')
    result = run_tool(fork_server, ["g++", "-shared", "-fPIC", "-o", "a.so", "a.cpp"], work=work, timeout_s=60)
    assert result.ok, result.output
    assert (work / "a.so").exists()


def test_a_program_that_fails_says_so(fork_server, work):
    result = run_tool(fork_server, ["/bin/sh", "-c", "echo no >&2; exit 3"], work=work, timeout_s=60)
    assert (result.exit_code, result.signal, result.timed_out, result.output) == (3, None, False, "no\n")


def test_a_program_that_hangs_is_ended_with_its_children(fork_server, work, monkeypatch):
    watched = tool._watched

    def watched_from_its_word_on(process, *rest):
        until = time.monotonic() + 60
        while not process.output().text and time.monotonic() < until:
            time.sleep(0.01)
        return watched(process, *rest)

    monkeypatch.setattr(tool, "_watched", watched_from_its_word_on)
    start = time.monotonic()
    result = run_tool(fork_server, ["/bin/sh", "-c", "sleep 300 & echo on; sleep 300"], work=work, timeout_s=0.5)
    assert result.timed_out
    assert not result.ok
    assert result.output == "on\n"
    assert time.monotonic() - start < 120


def test_a_program_cannot_leave_its_folder(fork_server, work, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("hidden")
    tmp_path.chmod(0o777)
    result = run_tool(
        fork_server, ["/bin/sh", "-c", f"cat {secret}; echo x > {tmp_path}/planted"], work=work, timeout_s=60
    )
    assert "hidden" not in result.output
    assert not (tmp_path / "planted").exists()


def test_a_program_sees_the_device_files_that_it_is_given_and_no_others(full, work):
    ask = ["/bin/sh", "-c", "test -c /dev/ptmx && echo there || echo not there"]
    assert run_tool(full, ask, work=work, timeout_s=60).output == "not there\n"
    assert run_tool(full, ask, work=work, timeout_s=60, devices=[Path("/dev/ptmx")]).output == "there\n"


def test_output_is_bounded(fork_server, work):
    result = run_tool(
        fork_server,
        ["/bin/sh", "-c", "yes | head -c 50000000"],
        work=work,
        timeout_s=30,
        limits=Limits(kept_output_bytes=1000),
    )
    assert result.ok
    assert len(result.output) < 3000


def test_a_program_that_does_not_exist_is_the_judges_failure(fork_server, work):
    with pytest.raises(JudgeFailed, match="No such file"):
        run_tool(fork_server, ["/bin/no-such-compiler"], work=work, timeout_s=60)


def test_what_a_program_writes_has_a_quota(fork_server, work):
    """Of all files together; an empty one counts as well."""
    fill = "i=0; while :; do i=$((i+1)); head -c 1000000 /dev/zero > part$i; done"
    result = run_tool(fork_server, ["/bin/sh", "-c", fill], work=work, timeout_s=120, limits=Limits(work_bytes=8 << 20))
    assert (result.over_disk, result.timed_out, result.ok) == (True, False, False)
    litter = "i=0; while :; do i=$((i+1)); : > empty$i; done"
    assert run_tool(
        fork_server, ["/bin/sh", "-c", litter], work=work, timeout_s=120, limits=Limits(work_bytes=1 << 20)
    ).over_disk


def test_a_quota_is_no_matter_to_what_stays_within_it(fork_server, work):
    result = run_tool(
        fork_server,
        ["/bin/sh", "-c", "head -c 1000000 /dev/zero > kept"],
        work=work,
        timeout_s=120,
        limits=Limits(work_bytes=8 << 20),
    )
    assert result.ok
    assert not result.over_disk


def test_a_few_bytes_of_assembler_make_no_large_build(fork_server, work):
    """The assembler's own file is stopped at its limit, and the finding says so."""
    (work / "a.cpp").write_text('asm(".fill 200000000, 1, 1");')
    limits = replace(SUBMISSION_LIMITS, file_bytes=16 << 20)
    result = run_tool(fork_server, ["g++", "-c", "a.cpp"], work=work, timeout_s=120, limits=limits)
    assert not result.ok
    assert sum(path.stat().st_blocks * 512 for path in work.iterdir()) < 32 << 20
    unit = BuildUnit(name="a", key="0" * 64, ok=False, cached=False, wall_s=1.0, diagnostics=[], log=result.output)
    assert compile_failure("a", result, unit, 60.0).code == Code.BUILD_TOO_LARGE.value, result.output
