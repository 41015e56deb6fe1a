"""A submission in a standalone program under Nsight Compute, in the same sandbox as a runner."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from msgspec.structs import replace

from evaluator.catalog import find_problem
from evaluator.cuda_source.symbols import Kernels
from evaluator.deadline import Deadline
from evaluator.findings import Code
from evaluator.judge.context.runner_factory import RunnerFactory
from evaluator.judge.exhibits import hardware_counters as module
from evaluator.judge.exhibits.hardware_counters import counters, own_parts, program
from evaluator.judge.runners.build_service import Served
from evaluator.protocol.frames import BuildReply, BuildRequest
from evaluator.protocol.frames.values import ModelMode
from evaluator.protocol.standalone_call import FAILED, LoneCall, lay_out
from evaluator.records import DeviceKind, Mode, SizeName
from evaluator.sandbox import run_tool

MODEL = """
import torch
class Model(torch.nn.Module):
    def __init__(self, wide):
        super().__init__()
        self.line = torch.nn.Linear(4, wide)
    def forward(self, x, scale):
        return self.line(x) * scale
def get_inputs():
    return {"x": torch.randn(3, 4), "scale": 2.0}
def get_init_inputs():
    return [5]
"""
SUBMISSION = """
import ctypes
import torch
from torch.utils.cpp_extension import load_inline
path = load_inline(name="tiny", cpp_sources="int marker();", is_python_module=False)
try:
    load_inline(name="other", cpp_sources="int other();")
    raise SystemExit("a library was built without a builder")
except RuntimeError as error:
    assert "no compiler is here" in str(error), error
from model import Model
class ModelNew(Model):
    def forward(self, x, scale):
        print("this goes nowhere")
        marker = ctypes.CDLL(path).marker()
        y = super().forward(x, scale) + 0 * marker
        if not torch.is_grad_enabled():
            x.zero_()
        return y
"""
BOOT = """
import contextlib, pathlib, sys
sys.path.insert(0, sys.argv[1])
import torch
from evaluator.runner import standalone
from evaluator.protocol.standalone_call import read_back
folder = pathlib.Path(sys.argv[2])
@contextlib.contextmanager
def watched():
    print("watched from here")
    yield
    print("to here")
result = standalone.run(read_back(folder), folder, torch.device("cpu"), watched())
import model
torch.manual_seed(7)
reference = model.Model(5)
torch.manual_seed(11)
inputs = model.get_inputs()
right = torch.allclose(result.outputs, reference(**inputs))
print("right" if right else "wrong", sorted(result.gradients or []))
try:
    import evaluator.judge
except ImportError:
    print("nothing else of the judge is here")
"""
REQUEST = BuildRequest(name="tiny", cpp_sources=["int marker();"], python_module=False)


def call(submission=SUBMISSION, *, backward=False):
    return LoneCall(
        submission=submission,
        entries=["ModelNew"],
        model=MODEL,
        weight_seed=7,
        seed=11,
        mode=ModelMode.EVAL,
        backward=backward,
        tf32=False,
        threads=1,
    )


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("library")
    (folder / "tiny.cpp").write_text('extern "C" int marker() { return 41; }\n')
    subprocess.run(["g++", "-shared", "-fPIC", "-o", "tiny.so", "tiny.cpp"], cwd=folder, check=True)
    return (folder / "tiny.so").read_bytes()


@pytest.fixture
def work(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("backward", [False, True])
def test_it_is_made_and_called_as_a_runner_would(full, work, library, backward):
    """Requires the private view, without which another user may not reach the interpreter of the tests."""
    lay_out(work, call(backward=backward)).put(REQUEST, BuildReply(ok=True, log=""), library)
    result = run_tool(full, program(BOOT, work), work=work, timeout_s=120, readable=own_parts())
    gradients = ["input scale", "input x", "parameter line.bias", "parameter line.weight"]
    expected = [name for name in gradients if name != "input scale"] if backward else []
    lines = [line for line in result.output.splitlines() if line != "this goes nowhere"]
    assert lines[:3] == ["watched from here", "to here", f"right {expected}"], result.output
    assert lines[3:] == ["nothing else of the judge is here"]


@pytest.fixture
def stub(tmp_path, monkeypatch):
    """Put a program named ncu first on the PATH, laid out like an installation of Nsight Compute."""

    def install(script):
        folder = tmp_path / "nsight"
        (folder / "target").mkdir(parents=True)
        path = folder / "ncu"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    return install


@pytest.fixture
def context(fork_server):
    """The attributes of a context that `counters` reads; without a GPU the list of device files is empty."""
    made = SimpleNamespace(
        source=SUBMISSION,
        seeds=SimpleNamespace(weight=7),
        in_training=False,
        deadline=Deadline(600.0),
        terms=SimpleNamespace(
            problem=find_problem("relu"),
            size=SizeName.AWKWARD,
            threads=1,
            device=DeviceKind.CUDA,
            gpu=SimpleNamespace(nodes=()),
            options=SimpleNamespace(entries=("ModelNew",)),
        ),
    )
    made.runners = RunnerFactory(made, fork_server, None)
    return made


@pytest.fixture
def build_service(library):
    served = [Served(REQUEST, BuildReply(ok=True, log=""), library)]
    return SimpleNamespace(served=served, device_code=[Kernels(device_code=True, names=["relu_kernel"])])


PAGE = """\
"ID","Kernel Name","dram__bytes.sum","dram__throughput.avg.pct_of_peak_sustained_elapsed",\
"gpu__time_duration.sum","sm__warps_active.avg.pct_of_peak_sustained_active"
"","","byte","%","ns","%"
"0","relu_kernel(const float *, float *)","4,000","50","1,000","75"
"""


def test_what_ncu_prints_becomes_counters(context, build_service, stub):
    stub(f"cat <<'PAGE'\n{PAGE}PAGE\ntest -e order.msgpack && ls libraries | wc -l >&2")
    found = counters(context, build_service)
    assert found.finding is None
    (kernel,) = found.kernels
    assert (kernel.name, kernel.own) == ("relu_kernel(const float *, float *)", True)
    assert (kernel.dram_bytes_per_s, kernel.occupancy_percent) == (pytest.approx(4e9), 75.0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="without a GPU it fails in a known way")
@pytest.mark.usefixtures("full")
def test_the_program_under_ncu_says_why_it_failed_and_no_more(context, build_service, stub):
    """The stub skips the options of ncu and runs the program, which finds no GPU."""
    stub(f'until [ "$1" = {sys.executable} ]; do shift; done\nexec "$@"')
    found = counters(context, build_service).finding
    assert found.code == Code.NOT_COUNTED.value
    assert found.message.startswith("the call failed: ")
    assert "CUDA" in found.message
    assert FAILED not in found.message


def test_counters_that_are_refused_are_a_finding(context, build_service, stub):
    stub("echo '==ERROR== ERR_NVGPUCTRPERM - The user does not have permission'\nexit 1")
    assert counters(context, build_service).finding.code == Code.COUNTERS_REFUSED.value


def test_an_ncu_that_hangs_is_ended(context, build_service, stub, monkeypatch):
    stub("sleep 300")
    monkeypatch.setattr(module, "_TIMEOUT_S", 0.5)
    assert "did not finish" in counters(context, build_service).finding.message


def test_without_ncu_there_is_a_finding(context, build_service, monkeypatch):
    monkeypatch.setattr(module, "find_ncu", lambda: None)
    assert counters(context, build_service).finding.code == Code.NO_NCU.value


@pytest.mark.parametrize(
    ("mode", "in_training", "expected"),
    [
        (Mode.TRAIN, False, ModelMode.AS_CONSTRUCTED),
        (Mode.TRAIN, True, ModelMode.TRAIN),
        (Mode.EVAL, False, ModelMode.EVAL),
    ],
)
def test_the_profiled_call_has_the_mode_of_the_grade(context, mode, in_training, expected):
    context.terms.problem = replace(context.terms.problem, mode=mode)
    context.in_training = in_training
    assert module._call(context).mode is expected
