"""Run a program, a compiler usually, inside of the same walls as a runner."""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from evaluator.isolation.folders import hand_over
from evaluator.isolation.limits import Limits
from evaluator.isolation.supervision import Starter


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a program ended and what it said. Exactly one of `exit_code` and `signal` is set, unless it `timed_out`."""

    exit_code: int | None
    signal: str | None
    timed_out: bool
    output: str
    wall_s: float

    @property
    def ok(self) -> bool:
        """Whether it ended by itself and reported success."""
        return self.exit_code == 0


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
            exited = process.wait_exit(timeout_s)
        finally:
            process.kill()
    finally:
        if os.geteuid() == 0:
            hand_over(work, 0, os.getegid())
    return ToolResult(
        exit_code=exited.exit_code if exited else None,
        signal=exited.signal if exited else None,
        timed_out=exited is None,
        output=process.output().text,
        wall_s=time.monotonic() - start,
    )
