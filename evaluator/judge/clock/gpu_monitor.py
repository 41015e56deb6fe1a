"""GPU monitor of a grade: conditions that make times unreliable, and clocks while a side is timed.

The judge reads the clocks between calls, never inside of the clock, and compares both sides. Lower clocks on a single
side, or a reason for lower clocks on a single side, make the speedup doubtful; the same on both sides does not.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from evaluator.devices.gpu import FAULTS, ClockLook, Gpu, GpuState, look_at_clock, state
from evaluator.findings import Code, finding
from evaluator.records import Clocks, Finding, GpuFacts, Samples, Timing
from evaluator.timing.stats import median

_CLOCK_DRIFT = 0.05
"""Greatest difference of both sides' multiprocessor clocks without a doubt, relative to the higher clock."""
_ACTIVE = 0.25
"""Share of a side's looks with a reason for reduced clocks; from the share upwards the reason counts."""
_HOTTER_C = 10
"""A side that starts hotter by more than this than the first side waits."""
_LOOK_EVERY = 5
REST_LIMIT_S = 2.0
REST_S = 0.1


class ClockWatch:
    """Reads the GPU's clock at times during a side."""

    def __init__(
        self, look: Callable[[], ClockLook | None], *, start_c: int | None = None, waited_s: float = 0.0
    ) -> None:
        """`look` reads the clock once. The side started at `start_c`, after a wait of `waited_s`."""
        self._look = look
        self._looks: list[ClockLook] = []
        self._start_c = start_c
        self._waited_s = waited_s

    def look(self) -> None:
        """Read the clock, if the driver answers."""
        clock_look = self._look()
        if clock_look is not None:
            self._looks.append(clock_look)

    def look_at(self, call: int) -> None:
        """Read the clock after every fifth call."""
        if call % _LOOK_EVERY == 0:
            self.look()

    def clocks(self) -> Clocks | None:
        """Return the clocks read so far; None if none was read."""
        if not self._looks:
            return None
        return Clocks(
            sm_mhz=[look.sm_mhz for look in self._looks],
            throttled=dict(Counter(reason for look in self._looks for reason in look.throttled)),
            start_c=self._start_c,
            waited_s=self._waited_s,
        )


NO_WATCH = ClockWatch(lambda: None)
"""For a device without a clock to watch: never sees anything."""


def needs_rest(now: ClockLook, first: ClockLook) -> bool:
    """Return whether a side would start in a worse state than the first side: throttled, or clearly hotter."""
    return bool(set(now.throttled) - set(first.throttled)) or now.temperature_c > first.temperature_c + _HOTTER_C


def clock_findings(timing: Timing | None) -> list[Finding]:
    """Return findings about clocks that differ between the sides. None without timing, or on older cards."""
    if timing is None:
        return []
    reference, submission = _side_of([timing.reference_before, timing.reference_after]), _side_of([timing.submission])
    if reference is None or submission is None:
        return []
    findings = []
    doubtful = sorted((submission.reasons ^ reference.reasons) | (submission.reasons & reference.reasons & FAULTS))
    if doubtful:
        sides = " and of ".join(
            name
            for name, side in (("the reference", reference), ("the submission", submission))
            if side.reasons & set(doubtful)
        )
        message = f"the GPU throttled its clocks in the calls of {sides}: {', '.join(doubtful)}"
        findings.append(finding(Code.GPU_THROTTLED, message))
    if abs(reference.sm_mhz - submission.sm_mhz) > _CLOCK_DRIFT * max(reference.sm_mhz, submission.sm_mhz):
        message = (
            f"the multiprocessors' clock was {reference.sm_mhz:.0f} MHz in the reference's calls, and "
            f"{submission.sm_mhz:.0f} MHz in the submission's"
        )
        findings.append(finding(Code.GPU_CLOCK_MOVED, message))
    return findings


class _Side(NamedTuple):
    """Median clock of a side, and the active reasons for reduced clocks."""

    sm_mhz: float
    reasons: frozenset[str]


def _side_of(halves: Sequence[Samples]) -> _Side | None:
    side_clocks = [half.clocks for half in halves if half.clocks is not None]
    mhz = [value for clocks in side_clocks for value in clocks.sm_mhz]
    if len(side_clocks) < len(halves) or not mhz:
        return None
    counts: Counter[str] = Counter()
    for clocks in side_clocks:
        counts.update(clocks.throttled)
    return _Side(median(mhz), frozenset(reason for reason, looks in counts.items() if looks >= _ACTIVE * len(mhz)))


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
