"""GPU monitor of a grade: reports conditions that make times unreliable as findings."""

import time
from collections.abc import Callable
from collections.abc import Set as AbstractSet

from evaluator.devices.gpu import ClockLook, Gpu, GpuState, look_at_clock, state
from evaluator.findings import Code, finding
from evaluator.judge.backend.clock_watch import REST_LIMIT_S, REST_S, ClockWatch, clock_findings, needs_rest
from evaluator.records import Finding, GpuFacts, Timing

_CLOCK_DRIFT = 0.05
"""Maximum change of the memory clock between two sides, relative to the higher clock."""


_ENDING_S, _LOOK_S = 1.0, 0.05
"""A judge that releases the GPU ends a moment later: time limit for the end of its context, and time between looks."""


class GpuMonitor:
    """Samples the state of one GPU through the driver, independent of any runner."""

    def __init__(self, gpu: Gpu, judge_pids: Callable[[], AbstractSet[int]] = frozenset) -> None:
        """Sample the GPU before the grade uses the GPU. `judge_pids` returns the process IDs of the judge."""
        self._gpu = gpu
        self._judge_pids = judge_pids
        self._first_pids = set(judge_pids())
        self._before = _settled(gpu, self._first_pids)
        self._samples: list[GpuState] = []
        self._first: ClockLook | None = None

    def begin_side(self) -> ClockWatch:
        """Let the GPU cool down to the state in which the first side began, for two seconds at most. Watch the side.

        A GPU that is throttled or hotter in one side alone would favor the other side.
        """
        now, waited_s = look_at_clock(self._gpu), 0.0
        self._first = self._first or now
        while now is not None and self._first is not None and needs_rest(now, self._first) and waited_s < REST_LIMIT_S:
            time.sleep(REST_S)
            waited_s += REST_S
            now = look_at_clock(self._gpu)
        start_c = None if now is None else now.temperature_c
        return ClockWatch(lambda: look_at_clock(self._gpu), start_c=start_c, waited_s=waited_s)

    def sample(self) -> GpuState:
        """Sample the GPU while still warm from the calls of a side."""
        self._samples.append(state(self._gpu))
        return self._samples[-1]

    def resumes(self, sample: GpuState) -> bool:
        """Return whether the GPU is as at the end of a side that an earlier grade measured; if so, add its sample."""
        first, now = ClockLook(sample.sm_mhz, sample.temperature_c, sample.throttled), look_at_clock(self._gpu)
        if now is None or needs_rest(now, first):
            return False
        self._samples.append(sample)
        self._first = self._first or first
        return True

    def facts(self) -> GpuFacts:
        """Return the GPU's facts for the scorecard."""
        return GpuFacts(
            uuid=self._gpu.uuid,
            capability=".".join(map(str, self._gpu.capability)),
            memory_bytes=self._gpu.memory_bytes,
            driver=self._gpu.driver,
            sm_mhz=[sample.sm_mhz for sample in self._samples],
            memory_mhz=[sample.memory_mhz for sample in self._samples],
            temperature_c=[sample.temperature_c for sample in self._samples],
        )

    def findings(self, timing: Timing | None) -> list[Finding]:
        """Return findings about the GPU before and during the grade, and about clocks that differ between the sides."""
        notes = findings(self._before, self._samples, state(self._gpu), self._first_pids | self._judge_pids())
        return [*notes, *clock_findings(timing)]


def _settled(gpu: Gpu, judge_pids: AbstractSet[int]) -> GpuState:
    """Return the state of the GPU as soon as no other process uses the GPU, after a second at the latest."""
    waited_s, gpu_state = 0.0, state(gpu)
    while set(gpu_state.processes) - judge_pids and waited_s < _ENDING_S:
        time.sleep(_LOOK_S)
        waited_s, gpu_state = waited_s + _LOOK_S, state(gpu)
    return gpu_state


def findings(
    before: GpuState, samples: list[GpuState], after: GpuState, judge_pids: AbstractSet[int] = frozenset()
) -> list[Finding]:
    """Return findings about states that make times on the GPU unreliable. `judge_pids` are the judge's own."""
    notes = []
    if strangers := sorted({*before.processes, *after.processes} - judge_pids):
        notes.append(finding(Code.GPU_SHARED, f"other processes use this GPU: {', '.join(map(str, strangers[:8]))}"))
    clocks = [sample.memory_mhz for sample in samples]
    if clocks and max(clocks) - min(clocks) > _CLOCK_DRIFT * max(clocks):
        message = f"the memory clock changed between {min(clocks)} and {max(clocks)} MHz"
        notes.append(finding(Code.GPU_CLOCK_MOVED, message))
    if after.ecc_errors > before.ecc_errors:
        count = after.ecc_errors - before.ecc_errors
        notes.append(finding(Code.GPU_ECC, f"the driver counted {count} uncorrectable memory errors during this grade"))
    if before.mig:
        notes.append(finding(Code.GPU_MIG, "the GPU is partitioned (MIG)"))
    return notes
