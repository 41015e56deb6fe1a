"""Run a program, usually a compiler, inside the same sandbox layers as a runner."""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from evaluator.sandbox.available_layers import Limits
from evaluator.sandbox.confined_process import ConfinedProcess, ExitInfo
from evaluator.sandbox.fork_server_client import ForkServer
from evaluator.sandbox.scratch_folders import hand_over, taken_bytes
from evaluator.sandbox.time_limit import TimeLimit


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """Exit and output of a program. Exactly one of `exit_code` and `signal` is set, unless it was killed.

    The judge kills a program after its timeout (`timed_out`), or if the folder exceeds `work_bytes` (`over_disk`).
    """

    exit_code: int | None
    signal: str | None
    timed_out: bool
    over_disk: bool = False
    output: str
    wall_s: float

    @property
    def ok(self) -> bool:
        """Whether the program exited with status 0 within its disk limit."""
        return self.exit_code == 0 and not self.over_disk


_LOOK_S = 0.1
"""Interval between measurements of a program's folder."""


def run_tool(
    fork_server: ForkServer,
    argv: Sequence[str],
    *,
    work: Path,
    timeout_s: float,
    limits: Limits | None = None,
    readable: Sequence[Path] = (),
    devices: Sequence[Path] = (),
    environment: Mapping[str, str] | None = None,
    in_cpu_time: bool = True,
) -> ToolResult:
    """Run `argv` in `work`, the only folder whose content is kept; return after the death of all its processes.

    `timeout_s` limits the program's CPU time, or wall time without `in_cpu_time`: see `TimeLimit`. `readable` and
    `devices` (device files) extend the view of all tools.

    `work` belongs to the runner's user meanwhile and to the caller afterwards. If the judge is root, the folders above
    must be accessible (x) to other users. Raises JudgeFailed if the program cannot be started.
    """
    start = time.monotonic()
    try:
        process = fork_server.execute(
            argv, work=work, limits=limits, readable=readable, devices=devices, environment=environment
        )
        limit = TimeLimit(timeout_s, process.cpu_time if in_cpu_time else None)
        try:
            exited, over_disk = _watched(process, work, limit, limits or Limits())
        finally:
            process.kill()
    finally:
        if os.geteuid() == 0:
            hand_over(work, 0, os.getegid())
    return ToolResult(
        exit_code=exited.exit_code if exited else None,
        signal=exited.signal if exited else None,
        timed_out=exited is None and not over_disk,
        over_disk=over_disk,
        output=process.output().text,
        wall_s=time.monotonic() - start,
    )


def _watched(process: ConfinedProcess, work: Path, limit: TimeLimit, limits: Limits) -> tuple[ExitInfo | None, bool]:
    """Wait for a program. Return its exit, or None at the time limit, and whether its folder exceeded the limit."""
    while True:
        started_s = time.monotonic()
        exited = process.wait_exit(min(max(limit.wait_s, 0.0), _LOOK_S))
        over_disk = taken_bytes(work, limits.work_bytes) > limits.work_bytes
        limit.spend(time.monotonic() - started_s)
        if exited is not None or over_disk or limit.reached():
            return exited, over_disk
