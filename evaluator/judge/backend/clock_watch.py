"""Clocks of a GPU while a side is timed: read by the judge between calls, never inside of the clock.

Both sides are compared with each other. Lower clocks on a single side, or a reason for lower clocks on a single
side, make the speedup doubtful; the same on both sides does not.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from evaluator.devices.gpu import FAULTS, ClockLook
from evaluator.findings import Code, finding
from evaluator.records import Clocks, Finding, Samples, Timing
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
