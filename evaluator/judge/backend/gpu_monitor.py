"""GPU monitor of a grade: reports conditions that make times unreliable as findings."""

from collections.abc import Callable
from collections.abc import Set as AbstractSet

from evaluator.devices.gpu import Gpu, GpuState, state
from evaluator.findings import Code, finding
from evaluator.records import Finding, GpuFacts

_CLOCK_DRIFT = 0.05
"""Maximum change of the multiprocessor clock between two sides, relative to the higher clock."""


class GpuMonitor:
    """Samples the state of one GPU through the driver, independent of any runner."""

    def __init__(self, gpu: Gpu, own: Callable[[], AbstractSet[int]] = frozenset) -> None:
        """Sample the GPU before the grade uses the GPU. `own` returns the judge's own processes."""
        self._gpu = gpu
        self._own = own
        self._known = set(own())
        self._before = state(gpu)
        self._samples: list[GpuState] = []

    def sample(self) -> GpuState:
        """Sample the GPU while still warm from the calls of a side."""
        self._samples.append(state(self._gpu))
        return self._samples[-1]

    def reuse(self, sample: GpuState) -> None:
        """Add a sample from the end of a side that was measured for an earlier grade and is reused."""
        self._samples.append(sample)

    def facts(self) -> GpuFacts:
        """Return the GPU's facts for the scorecard."""
        return GpuFacts(
            uuid=self._gpu.uuid,
            capability=".".join(map(str, self._gpu.capability)),
            memory_bytes=self._gpu.memory_bytes,
            driver=self._gpu.driver,
            sm_mhz=[each.sm_mhz for each in self._samples],
            memory_mhz=[each.memory_mhz for each in self._samples],
            temperature_c=[each.temperature_c for each in self._samples],
        )

    def findings(self) -> list[Finding]:
        """Return findings about the GPU before and during the grade."""
        return findings(self._before, self._samples, state(self._gpu), self._known | self._own())


def findings(
    before: GpuState, samples: list[GpuState], after: GpuState, own: AbstractSet[int] = frozenset()
) -> list[Finding]:
    """Return findings about states that make times on the GPU unreliable. `own` are the judge's own processes."""
    found = []
    if strangers := sorted({*before.processes, *after.processes} - own):
        found.append(finding(Code.GPU_SHARED, f"other processes use this GPU: {', '.join(map(str, strangers[:8]))}"))
    if reasons := sorted({reason for each in samples for reason in each.throttled}):
        found.append(finding(Code.GPU_THROTTLED, f"the GPU throttled its clocks: {', '.join(reasons)}"))
    for name, clocks in (
        ("multiprocessors", [each.sm_mhz for each in samples]),
        ("memory", [each.memory_mhz for each in samples]),
    ):
        if clocks and max(clocks) - min(clocks) > _CLOCK_DRIFT * max(clocks):
            message = f"the {name} clock changed between {min(clocks)} and {max(clocks)} MHz"
            found.append(finding(Code.GPU_CLOCK_MOVED, message))
    if after.ecc_errors > before.ecc_errors:
        count = after.ecc_errors - before.ecc_errors
        found.append(finding(Code.GPU_ECC, f"the driver counted {count} uncorrectable memory errors during this grade"))
    if before.mig:
        found.append(finding(Code.GPU_MIG, "the GPU is partitioned (MIG)"))
    return found
