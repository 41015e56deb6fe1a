"""What is made ahead for a device, with the making of it as functions of the test."""

import contextlib
from types import SimpleNamespace

import pytest

from evaluator.cache import build_cache
from evaluator.compile import warm_up
from evaluator.compile.own_libraries import PRECOMPILED
from evaluator.compile.warm_up import Artefact, ArtefactState, is_there, make_ahead, parts
from evaluator.emulator.frontend.build_ladder import SUPPORT
from evaluator.errors import ExitCode, JudgeFailed, ToolchainMissing
from evaluator.progress import Silent
from evaluator.records import DeviceKind
from evaluator.toolchain import host_compiler, nvcc
from tests.unit.compile.tool_results import ended

EVERY = [DeviceKind.CUDA, DeviceKind.EMULATED, DeviceKind.CPU]
RUNTIME_FILES = ("runtime.so", *PRECOMPILED.values(), SUPPORT, "native.so")
OF_THE_EMULATOR = (
    *("runtime", "support of bindings", "precompiled header", "precompiled header with pybind11"),
    "precompiled header of all of PyTorch",
)


class Tool:
    """Stands in for the sandbox: writes what is asked for if it can."""

    def __init__(self, *can):
        self.calls = 0
        self._can = can

    def __call__(self, fork_server, argv, *, work, **_):
        self.calls += 1
        for name in self._can:
            if (work / name).parent.exists():
                (work / name).write_bytes(b"made")
        ok = bool(self._can)
        return ended(0 if ok else 1, "a.h: error: x")


@pytest.fixture(autouse=True)
def machine(monkeypatch, named_compilers):
    """A machine with g++, without nvcc, whose sandbox is a tool of the test; no earlier test has spilled builds."""
    build_cache.remove()

    def missing():
        raise ToolchainMissing("no nvcc")

    monkeypatch.setattr(nvcc, "nvcc", missing)
    monkeypatch.setattr(warm_up, "ForkServer", lambda **_: contextlib.nullcontext())
    return lambda tool: monkeypatch.setattr(warm_up, "run_tool", tool)


def outcomes(preparations):
    return {(part.device.value, part.name): part.outcome.value for part in preparations.parts}


def test_everything_is_made_once(tmp_path, machine):
    machine(tool := Tool(*RUNTIME_FILES))
    needed = parts([DeviceKind.EMULATED, DeviceKind.CPU], tmp_path)
    assert not any(is_there(part) for part in needed)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.name != ".lock"]
    first = make_ahead(needed, tmp_path, Silent())
    everything = [("cpu", "allocator"), *(("emulated", name) for name in OF_THE_EMULATOR)]
    assert outcomes(first) == dict.fromkeys(everything, "made")
    assert first.exit_code is ExitCode.CORRECT
    calls = tool.calls
    assert all(is_there(part) for part in needed)
    assert outcomes(make_ahead(needed, tmp_path, Silent())) == dict.fromkeys(everything, "there")
    assert tool.calls == calls


def test_what_cannot_be_made_is_told_with_its_reason_and_stops_nothing_else(tmp_path, machine):
    machine(Tool("native.so"))
    made = make_ahead(parts(EVERY[1:], tmp_path), tmp_path, Silent())
    assert outcomes(made) == {
        ("cpu", "allocator"): "made",
        **{("emulated", name): "failed" for name in OF_THE_EMULATOR},
    }
    assert "runtime does not compile" in made.parts[1].why
    assert made.exit_code is ExitCode.INFRASTRUCTURE


def test_what_cannot_be_kept_is_not_made(tmp_path, machine):
    (tmp_path / "parts").write_text("a file in the folder's place")
    machine(Tool(*RUNTIME_FILES))
    made = make_ahead(parts([DeviceKind.CPU], tmp_path), tmp_path, Silent())
    assert outcomes(made) == {("cpu", "allocator"): "failed"}
    assert "cannot be kept" in made.parts[0].why


def test_a_part_that_fails_for_the_machines_sake_says_so(tmp_path, machine):
    def fail(run):
        raise JudgeFailed("cannot create a folder for the compiler")

    (report,) = make_ahead([Artefact(DeviceKind.CPU, "x", fail)], tmp_path, Silent()).parts
    assert (report.outcome, report.why) == (ArtefactState.FAILED, "cannot create a folder for the compiler")


@pytest.fixture
def with_nvcc(monkeypatch, tmp_path):
    monkeypatch.setattr(nvcc, "nvcc", lambda: host_compiler.InstalledTool("/cuda/bin/nvcc", "13.0"))
    monkeypatch.setattr(nvcc, "cuda_home", lambda: tmp_path)
    monkeypatch.setattr("importlib.metadata.version", lambda _: "2.13.0")
    monkeypatch.setattr(host_compiler, "torch_version", lambda: "2.13.0")
    monkeypatch.setattr("evaluator.compile.precompiled._key", lambda: "0" * 32)


@pytest.mark.usefixtures("with_nvcc")
def test_a_machine_that_builds_for_gpus_prepares_the_split_step(tmp_path, machine):
    cache = tmp_path / "cache"
    (part,) = parts([], cache)
    assert (part.device, part.name) == (DeviceKind.CUDA, "headers of split builds")
    assert not is_there(part)
    assert not cache.exists()
    machine(Tool())
    assert make_ahead([part], cache, Silent()).parts[0].why == "a.h: error: x"
    machine(tool := Tool("warpgrade_host.h.gch", "support.o"))
    assert outcomes(make_ahead([part], cache, Silent())) == {("cuda", part.name): "made"}
    assert tool.calls == 1
    assert is_there(part)


@pytest.mark.usefixtures("with_nvcc")
def test_a_machine_with_gpus_prepares_the_judges_kernels_for_each_kind(tmp_path, machine, monkeypatch):
    found = [SimpleNamespace(capability=capability) for capability in [(9, 0), (9, 0), (8, 0)]]
    monkeypatch.setattr(warm_up, "gpus", lambda: found)
    machine(Tool("native.so"))
    headers, *needed = parts([DeviceKind.CUDA], tmp_path)
    assert headers.name == "headers of split builds", "a batch waits for them longest"
    made = make_ahead(needed, tmp_path, Silent())
    names = ["allocator", "judge's kernels for sm_80", "judge's kernels for sm_90a"]
    assert outcomes(made) == {("cuda", name): "made" for name in names}


@pytest.mark.usefixtures("with_nvcc")
def test_a_pytorch_without_cuda_has_no_split_step(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.metadata.version", lambda _: "2.13.0+cpu")
    assert parts([], tmp_path) == []
