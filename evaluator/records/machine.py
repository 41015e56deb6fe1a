"""The machine, the device and the sandbox of a grade."""

from evaluator.records.base import Record
from evaluator.records.names import DeviceKind


class Environment(Record, frozen=True):
    """Software and machine, as seen by the judge."""

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
    """A GPU, with clocks and temperatures before and after the grade."""

    uuid: str
    capability: str
    memory_bytes: int
    driver: str
    sm_mhz: list[int]
    memory_mhz: list[int]
    temperature_c: list[int]


class DeviceFacts(Record, frozen=True):
    """Device of the grade."""

    kind: DeviceKind
    name: str
    gpu: GpuFacts | None = None


class SandboxFacts(Record, frozen=True):
    """Active and missing layers of the sandbox, and the limits.

    `memory_bytes` is the limit of each process, `held_bytes` the limit of all processes together (0 on older cards).
    """

    mode: str
    layers: list[str]
    missing: list[str]
    memory_bytes: int
    processes: int
    file_bytes: int
    private_folder_bytes: int
    held_bytes: int = 0
