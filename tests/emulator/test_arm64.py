"""The emulator's engine on arm64, where fibers are ucontext's: cross-compiled, and run by QEMU."""

import shutil
import subprocess
from pathlib import Path

import pytest

from evaluator.emulator import headers
from evaluator.emulator.frontend.build_ladder import KERNEL_FLAGS

COMPILER, MACHINE = shutil.which("aarch64-linux-gnu-g++"), shutil.which("qemu-aarch64")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        COMPILER is None or MACHINE is None, reason="needs g++-aarch64-linux-gnu and qemu-user (Debian's packages)"
    ),
]
HERE = Path(__file__).parent
ORDERS = [(0, 0, 1), (1, 0, 1), (2, 5, 1), (2, 6, 3)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("arm64")
    (made / "no_torch.cpp").write_text("namespace emu { void install_torch_allocator() {} }\n")
    sources = [path for path in headers.runtime_sources() if path.suffix == ".cpp" and "torch" not in path.name]
    library = [COMPILER, "-std=c++20", "-fPIC", "-shared", "-fvisibility=hidden", f"-isystem{headers.INCLUDE}"]
    engine = ["-O2", "-DWARPGRADE_EMU_RUNTIME", "-pthread", "-Wall", "-Wextra", "-Werror"]
    for arguments in (
        [*library, *engine, *map(str, sources), str(made / "no_torch.cpp"), "-o", str(made / "libemulator.so")],
        [*library, str(HERE / "engine_cases.cpp"), *KERNEL_FLAGS, "-o", str(made / "cases.so")],
        [COMPILER, str(HERE / "arm64_main.cpp"), "-o", str(made / "main"), "-ldl"],
    ):
        subprocess.run(arguments, check=True)
    return made


@pytest.fixture
def run(folder):
    def call(name, *arguments, schedule=(0, 0, 1)):
        command = [MACHINE, "-L", "/usr/aarch64-linux-gnu", "./main", name, *map(str, (*schedule, *arguments))]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=300)
        return done.stdout.strip()

    return call


@pytest.mark.parametrize("schedule", ORDERS)
@pytest.mark.parametrize("case", ["elementwise", "reduction", "warp_shuffles"])
def test_a_right_kernel_is_right_under_every_schedule(run, case, schedule):
    assert run(case, schedule=schedule) == "wrong 0"


def test_warps_and_barriers(run):
    assert run("warp_votes") == "aaaaaaaa 1 0 ff ff000000 496 7 31"
    assert run("counting_barriers", schedule=(1, 0, 1)) == "22 22 0 1"
    assert "divergent-barrier" in run("divergent_barrier", 16)
    assert "deadlock" in run("deadlock")
    assert "lane-outside-mask" in run("lane_outside_mask")


def test_faults_name_thread_and_tensor(run):
    assert run("read_at", 1020, 1) == "2"
    text = run("read_at", 1022, 1)
    assert "kernel reads_at block (0,0,0) thread (2,0,0)" in text
    assert "just past the end of a cudaMalloc of 4096 bytes" in text
    assert "through a null pointer" in run("null_pointer")
    assert run("exception", 1) == "thrown by a kernel"
