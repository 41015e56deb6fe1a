"""Run a program, a compiler usually, inside of the same walls as a runner."""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from evaluator.isolation.child import ConfinedProcess, ExitInfo
from evaluator.isolation.folders import hand_over, taken_bytes
from evaluator.isolation.limits import Limits
from evaluator.isolation.supervision import Starter


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a program ended and what it said. Exactly one of `exit_code` and `signal` is set, unless it was stopped.

    It is stopped where it `timed_out`, or is `over_disk`: its folder took more than `work_bytes`.
    """

    exit_code: int | None
    signal: str | None
    timed_out: bool
    over_disk: bool = False
    output: str
    wall_s: float

    @property
    def ok(self) -> bool:
        """Whether it ended by itself and reported success."""
        return self.exit_code == 0 and not self.over_disk


_LOOK_S = 0.1
"""How often the folder of a program is looked at."""


def run_tool(
    starter: Starter,
    argv: Sequence[str],
    *,
    work: Path,
    timeout_s: float,
    limits: Limits | None = None,
    readable: Sequence[Path] = (),
    devices: Sequence[Path] = (),
    environment: Mapping[str, str] | None = None,
) -> ToolResult:
    """Run `argv` in the folder `work`, the only one that it can write and keep; wait until all of it is dead.

    `readable` and `devices` (device files) are added to what every tool sees.

    `work` belongs to the runner's user meanwhile and to this one's afterwards. The folders above it must be open
    (x) to others where the judge is root. Raises JudgeFailed if the program cannot be started.
    """
    start = time.monotonic()
    try:
        process = starter.execute(
            argv, work=work, limits=limits, readable=readable, devices=devices, environment=environment
        )
        try:
            exited, over_disk = _watched(process, work, timeout_s, limits or Limits())
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


def _watched(process: ConfinedProcess, work: Path, timeout_s: float, limits: Limits) -> tuple[ExitInfo | None, bool]:
    """Wait for the end of a program; None where it had none in time. And whether its folder took too much meanwhile."""
    deadline = time.monotonic() + timeout_s
    while True:
        left_s = deadline - time.monotonic()
        exited = process.wait_exit(min(max(left_s, 0.0), _LOOK_S))
        over_disk = taken_bytes(work, limits.work_bytes) > limits.work_bytes
        if exited is not None or over_disk or left_s <= 0:
            return exited, over_disk
