"""Measure the judge's cost of one frame from a runner: CPU time and peak memory.

    python -m benchmarks.speed.judge_cost

Each row is a separate process, which receives a frame over a socket and processes the frame like the judge. Compilers
and sandboxed children are excluded, because separate limits bound their cost. The outputs of the emulator's front end
and of nm are prepared in advance.
"""

import ctypes
import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from evaluator.cache.build_cache import BuildCache
from evaluator.compile.builder import MOST_BUILT_BYTES, CpuBuilder
from evaluator.compile.emulated_builder import EmulatedBuilder
from evaluator.cuda_source.symbols import instantiations, missing
from evaluator.emulator.frontend.front_end import FrontEnd
from evaluator.judge.runners.build_service import BuildBudget, BuildService
from evaluator.judge.runners.runner_client import RunnerClient
from evaluator.judge.runners.runner_faults import Stage
from evaluator.protocol.frames import (
    BuildRequest,
    Constructed,
    Done,
    Items,
    Profiled,
    Raised,
    Scalar,
    SeenKernel,
    SourceFile,
    TensorView,
)
from evaluator.protocol.frames.bounds import MOST_NODES
from evaluator.sandbox import ToolResult
from evaluator.toolchain.diagnostics import parse

VIEW = TensorView(
    dtype="float32", shape=(2, 3), strides=(3, 1), offset_bytes=4096, storage=(140_000_000_000_000, 1 << 30)
)
NAME = "parameter encoder.layers.11.attention.output.dense." * 5
KERNEL = "__global__ void k{n}(float* x) {{ x[threadIdx.x] *= {n}; }}\n"
TEXT = "".join(KERNEL.format(n=n) for n in range(15_500))
MOST = 4 << 20
LOG = "".join(f"main.cpp:{n}:1: error: no\n{n}.cpp:1:1: error: no\n" for n in range(1500))[: 64 << 10]
FLAGS = ["-D" + "x" * 4000] * 8


class _Runner:
    def __init__(self, data: bytes) -> None:
        self.socket, self.hostile = socket.socketpair()
        self._data = data
        threading.Thread(target=self._tell, daemon=True).start()

    def _tell(self) -> None:
        self.hostile.sendall(self._data)
        self.hostile.shutdown(socket.SHUT_WR)
        while self.hostile.recv(1 << 20):
            pass

    def wait_exit(self, _: float) -> None:
        return None

    def kill(self) -> None:
        self.socket.close()


def _failing(*_: Any, **__: Any) -> ToolResult:
    return ToolResult(exit_code=1, signal=None, timed_out=False, output=LOG, wall_s=0.0)


def _linking(_: Any, *, work: Path, **__: Any) -> ToolResult:
    (work / "x.so").write_bytes((b"\x7fELF.nv_fatbin" + b"__device_stub__Z1kv\0" * (3 << 20))[:MOST_BUILT_BYTES])
    return ToolResult(exit_code=0, signal=None, timed_out=False, output="", wall_s=0.0)


def _front(request: BuildRequest) -> FrontEnd:
    """Replace the sandboxed child: return texts of the size of its result."""
    texts = [SourceFile("cuda.cu", "\n".join(request.cuda_sources) * 2)]
    return FrontEnd([], texts, texts, ["k"] * 256, marks_returns=True, vectors=True)


def _heard(frame: object, build_service: BuildService | None = None) -> Callable[[], object]:
    """Return a function in which the judge receives and processes a frame."""
    body = frame if isinstance(frame, bytes) else msgspec.msgpack.encode(frame)

    def hear() -> object:
        with RunnerClient(_Runner(len(body).to_bytes(4, "big") + body), build_service) as session:  # type: ignore[arg-type]
            return session.answer(Stage.CALL, 600.0)

    return hear


def _asked(request: BuildRequest, tool: Callable[..., ToolResult], folder: Path) -> Callable[[], object]:
    builder = CpuBuilder(tool, BuildCache(folder), TEXT, 600.0)
    return _heard(request, BuildService(builder, BuildBudget(600.0)))


def _emulated(request: BuildRequest, folder: Path) -> Callable[[], object]:
    builder = EmulatedBuilder(_failing, BuildCache(folder), TEXT, 600.0, _front)
    return _heard(request, BuildService(builder, BuildBudget(600.0)))


def _cases(folder: Path) -> dict[str, Callable[[], object]]:
    lines = "a;\n" * (MOST // 3 - 1000)
    names = {f"{n}.cpp": lines[: MOST // 250] for n in range(240)}
    wide = Items(
        is_tuple=False, items=[Items(is_tuple=False, items=[Scalar(value=None)] * 4095)] * (MOST_NODES // 4096)
    )
    emoji = "\U0001f600" * (MOST // 4 - 1000)
    listing = "U void k<float>(float*) [clone .a]\n" * ((1 << 20) // 36)
    return {
        "honest: 500 outputs": _heard(Done(index=0, outputs=Items(is_tuple=False, items=[VIEW] * 500))),
        "honest: 2000 gradients": _heard(
            Done(index=0, outputs=VIEW, gradients={f"{NAME}{n}": VIEW for n in range(2000)})
        ),
        "honest: a failure": _heard(Raised("ValueError", "x" * 8000, [(1, "y" * 500)] * 32)),
        "honest: a profile": _heard(Profiled([SeenKernel("k" * 500, 1, 1.0)] * 256, 0)),
        "honest: 900 KiB of C++, built": _asked(BuildRequest(name="x", cpp_sources=[TEXT]), _linking, folder),
        "honest: 900 KiB of CUDA, emulated": _emulated(BuildRequest(name="x", cuda_sources=[TEXT]), folder),
        "hostile: the largest number of values": _heard(Done(index=0, outputs=wide)),
        "hostile: 3 MiB of empty values": _heard(
            Done(
                index=0,
                outputs=Items(is_tuple=False, items=[Items(is_tuple=False, items=[Scalar(value=None)] * 4096)] * 36),
            )
        ),
        "hostile: 4096 gradients": _heard(
            Done(index=0, outputs=VIEW, gradients={f"{n:0700}": None for n in range(4096)})
        ),
        "hostile: a long message": _heard(Raised("x" * 1024, "(x.cu:1)" * 8192, [(1, "y" * 1024)] * 32)),
        "hostile: the longest difference": _heard(Constructed("\U0001f600" * 60_000)),
        "hostile: a frame above the size limit": _heard(b"\x81\xa4type\xa4Done" + b"\xc0" * (15 << 20)),
        "hostile: 4 MiB in short lines, 240 files": _asked(
            BuildRequest(name="x", files=[SourceFile(n, t) for n, t in names.items()]), _failing, folder
        ),
        "hostile: 4 MiB in short lines": _asked(BuildRequest(name="x", cpp_sources=[lines]), _failing, folder),
        "hostile: 4 MiB of another alphabet": _asked(BuildRequest(name="x", cpp_sources=[emoji]), _failing, folder),
        "hostile: 32 KiB of flags": _asked(BuildRequest(name="x", extra_cflags=FLAGS), _failing, folder),
        "hostile: 1000 functions": _asked(
            BuildRequest(
                name="x", cpp_sources=["f " * (1 << 20)], functions={"g" * 900 + str(n): "" for n in range(700)}
            ),
            _failing,
            folder,
        ),
        "hostile: a library of 64 MiB full of names": _asked(BuildRequest(name="x"), _linking, folder),
        "hostile: 4 MiB of CUDA, emulated": _emulated(BuildRequest(name="x", cuda_sources=[lines]), folder),
        "hostile: compiler output, 240 files": lambda: parse(LOG, names, lines[: 1 << 20]),
        "hostile: output of nm, 1 MiB": lambda: (instantiations(listing, {"k"}), missing(listing, "", {"k"})),
    }


def _measure(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        work = _cases(Path(folder))[name]
        # Free the memory of preparing the cases: an earlier peak would hide the peak of the work.
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        before_mib, started = _peak_now_mib(), time.process_time()
        work()
        print(json.dumps([time.process_time() - started, _peak_now_mib() - before_mib]))


def _peak_now_mib() -> float:
    """Read the peak memory since the last reset, which getrusage does not report."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM"))


def main() -> None:
    """Print the table, or measure one row of it."""
    if len(sys.argv) > 1:
        _measure(sys.argv[1])
        return
    print("| frame | CPU | memory |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        names = list(_cases(Path(folder)))
    for name in names:
        said = subprocess.run(
            [sys.executable, "-m", "benchmarks.speed.judge_cost", name], capture_output=True, text=True, check=True
        ).stdout
        cpu_s, mib = json.loads(said)
        print(f"| {name} | {cpu_s:.2f} s | {mib:.0f} MiB |", flush=True)


if __name__ == "__main__":
    main()
