"""The machine, the device and the walls of a grade."""

from evaluator.records.base import Record
from evaluator.records.names import DeviceKind


class Environment(Record, frozen=True):
    """The software and the machine, as the judge sees them."""

    warpgrade: str
    python: str
    torch: str
    compiler: str
    platform: str
    cpu: str
    cpu_cores: int
    memory_bytes: int
    threads: int


class GpuFacts(Record, frozen=True):
    """One GPU: what it is, and how it was before and after the grade."""

    uuid: str
    capability: str
    memory_bytes: int
    driver: str
    sm_mhz: list[int]
    memory_mhz: list[int]
    temperature_c: list[int]


class DeviceFacts(Record, frozen=True):
    """The device that ran the submission."""

    kind: DeviceKind
    name: str
    gpu: GpuFacts | None = None


class SandboxFacts(Record, frozen=True):
    """Which walls stood around the submission, which could not be built here, and the limits inside.

    `memory_bytes` is each process's; `held_bytes` all of theirs together, 0 on cards from before it was added up.
    """

    mode: str
    layers: list[str]
    missing: list[str]
    memory_bytes: int
    processes: int
    file_bytes: int
    private_folder_bytes: int
    held_bytes: int = 0
