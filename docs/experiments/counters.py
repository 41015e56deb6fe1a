"""Does Nsight Compute read the counters of a program that runs behind every wall of a runner?

python docs/experiments/counters.py
"""

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from evaluator.devices.gpu import choose
from evaluator.judge.backend.device_backend import GpuBackend
from evaluator.judge.runners.fork_servers import fork_server_for
from evaluator.records import DeviceKind, SandboxMode
from evaluator.sandbox import run_tool

PROGRAM = """
import torch
x = torch.randn(1 << 26, device="cuda")
torch.relu(x)
torch.cuda.synchronize()
"""
METRICS = (
    "gpu__time_duration.sum",
    "dram__bytes.sum",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
)


def main() -> None:
    found = shutil.which("ncu")
    if found is None:
        raise SystemExit("there is no ncu on the PATH")
    gpu = choose(None)
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        top.chmod(0o711)
        work = top / "work"
        work.mkdir()
        program = work / "program.py"
        program.write_text(PROGRAM)
        options = ["--clock-control", "none", "--csv", "--page", "raw", "--metrics", ",".join(METRICS)]
        argv = [found, *options, sys.executable, str(program)]
        began_s = time.monotonic()
        plain = subprocess.run(argv, capture_output=True, text=True, check=False)
        print(f"plain: exit status {plain.returncode}, {time.monotonic() - began_s:.1f} s\n{plain.stdout[-2000:]}")
        with fork_server_for(DeviceKind.CUDA, gpu.uuid, SandboxMode.FULL, 8) as fork_server:
            readable = [path for path in (Path("/usr/local"), Path("/opt")) if path.exists()]
            walled = run_tool(
                fork_server,
                argv,
                work=work,
                timeout_s=120.0,
                limits=GpuBackend.limits,
                readable=readable,
                devices=gpu.nodes,
                environment={"HOME": str(work), "TMPDIR": str(work)},
            )
        print(f"behind walls: exit status {walled.exit_code}, {walled.wall_s:.1f} s\n{walled.output[-2000:]}")


if __name__ == "__main__":
    main()
