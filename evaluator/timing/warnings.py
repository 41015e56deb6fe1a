"""Findings about doubtful samples, and about slowness hidden by the median."""

from evaluator.findings import Code, finding
from evaluator.records import Finding, Samples, Timing
from evaluator.timing.agreement import beside_single_calls, beside_spot_checks, disagreement
from evaluator.timing.stats import CLOCK_ERROR_MS, Resolution, lower_quartile, median, outliers

_DRIFT = 0.05
_MANY = 0.05
"""A median tolerates a few disturbed calls; a larger share indicates a busy machine."""
_SLOW_FIRST = 10.0
_SLOWER_FIRST = 2.0
"""Any model's first call is slow (memory, libraries); the reference's first call calibrates this machine."""
_QUIET = 1.0
_MORE_HOST, _MORE_HOST_MS = 0.25, 0.002
"""Host time of a forward beyond the reference's within the variation from process to process."""


def warnings(timing: Timing, resolution: Resolution) -> list[Finding]:
    """Return the doubts about `timing`: at most a single finding of each kind."""
    candidates = [
        _copied(timing),
        _drifted(timing, resolution.reference_ms),
        _not_quiet(timing),
        _outliers(timing),
        _first_call_slow(timing, resolution.submission_ms),
        _host_bound(timing, resolution.submission_ms),
        _disagreement(timing.submission, timing.reference_before),
    ]
    return [warning for warning in candidates if warning is not None]


def _copied(timing: Timing) -> Finding | None:
    submission = timing.submission.outputs_copied
    reference = timing.reference_before.outputs_copied or timing.reference_after.outputs_copied
    if not (submission or reference):
        return None
    sides = "both sides'" if submission and reference else "the submission's" if submission else "the reference's"
    message = f"{sides} outputs were copied inside the clock"
    return finding(Code.OUTPUT_COPIED, message, submission=submission, reference=reference)


def _drifted(timing: Timing, resolution_ms: float) -> Finding | None:
    before_ms, after_ms = timing.reference_before.median_ms, timing.reference_after.median_ms
    if abs(before_ms - after_ms) <= max(_DRIFT * timing.reference_median_ms, resolution_ms):
        return None
    message = f"the reference took {before_ms:.4g} ms before and {after_ms:.4g} ms after the submission"
    return finding(Code.REFERENCE_DRIFTED, message, before_ms=before_ms, after_ms=after_ms)


def _not_quiet(timing: Timing) -> Finding | None:
    sides = (timing.reference_before, timing.submission, timing.reference_after)
    spread_ms, empty_ms = max(side.overhead_iqr_ms for side in sides), timing.reference_before.overhead_ms
    if spread_ms <= _QUIET * empty_ms:
        return None
    return finding(Code.NOT_QUIET, f"an empty call takes {empty_ms:.3g} ms, with a spread of {spread_ms:.3g} ms")


def _outliers(timing: Timing) -> Finding | None:
    for side in (timing.submission, timing.reference_before, timing.reference_after):
        far_ms = outliers(side.samples_ms)
        if len(far_ms) > max(_MANY * len(side.samples_ms), 1):
            message = (
                f"{side.side}: {len(far_ms)} of {len(side.samples_ms)} calls are outliers, "
                f"up to {max(far_ms):.4g} ms against a median of {side.median_ms:.4g} ms"
            )
            return finding(Code.OUTLIERS, message, outliers=len(far_ms), calls=len(side.samples_ms))
    return None


def _first_call_slow(timing: Timing, resolution_ms: float) -> Finding | None:
    """Compare the submission's first call with that of the reference's second runner (see `Samples`)."""
    submission = timing.submission
    first_ms, usual_ms = submission.first_call_ms, timing.reference_after.first_call_ms
    single_ms = submission.median_ms if submission.windows is None else median(submission.windows.single_ms)
    least_ms = max(resolution_ms, CLOCK_ERROR_MS[timing.clock])
    if first_ms <= max(_SLOW_FIRST * (single_ms + least_ms), _SLOWER_FIRST * usual_ms):
        return None
    message = (
        f"the submission's first call took {first_ms:.4g} ms, its other calls {submission.median_ms:.4g} ms; "
        f"the reference's first call took {usual_ms:.4g} ms"
    )
    return finding(Code.FIRST_CALL_SLOW, message, first_call_ms=first_ms, reference_first_call_ms=usual_ms)


def _disagreement(submission: Samples, reference: Samples) -> Finding | None:
    """Report a side whose windows disagree with other measurements: single calls are quoted, or a longer time.

    The submission's windows can be slower than its spot calls, if the reference's are slower by more: so the message
    has the times of both.
    """
    windows, reference_windows = submission.windows, reference.windows
    if windows is None or not (windows.shared_work or windows.raised_ms):
        return None
    window_ms, spot_ms = median(windows.measured_ms), lower_quartile(windows.spot_ms or windows.single_ms)
    if windows.shared_work:
        other = disagreement(windows, reference_windows) or (
            beside_spot_checks(windows, reference_windows)
            if windows.spot_ms  # On the host, single calls are the second measurement.
            else f"{beside_single_calls(windows, None)}, beyond that call's error"
        )
        quoted = "single calls are quoted"
    else:
        other = f"{beside_spot_checks(windows, reference_windows)}, with warm inputs in L2"
        quoted = f"{_microseconds(submission.median_ms)} are quoted, for the smaller speedup"
    message = f"a call takes {_microseconds(window_ms)} in a window of calls, and {other}; {quoted}"
    return finding(Code.SHARED_WORK, message, window_ms=window_ms, spot_ms=spot_ms)


def _host_bound(timing: Timing, resolution_ms: float) -> Finding | None:
    """Report a submission that is host-bound, and needs more of the host than the reference.

    Nearly every kernel of microseconds is host-bound when called from Python, and so is its reference: the card says
    so. The speedup misleads only if the submission's host work is longer.
    """
    submission = timing.submission
    if submission.waits_for_gpu:
        if timing.reference_before.waits_for_gpu or timing.reference_after.waits_for_gpu:
            return None
        message = (
            "forward waits for the GPU, or its launches take over 30 ms, unlike the reference's: the quoted "
            f"{submission.median_ms:.3g} ms include the host's time"
        )
        return finding(Code.HOST_BOUND, message, host_ms=None, gpu_ms=submission.median_ms)
    host_ms, usual_ms = submission.launch_ms, timing.reference_launch_ms
    if host_ms is None or host_ms <= submission.median_ms + resolution_ms:
        return None
    if _times_launches_in_windows(submission) is not _times_launches_in_windows(timing.reference_before):
        return None  # Times beyond an empty call are shorter: an empty call has a launch too.
    if usual_ms is not None and host_ms <= usual_ms * (1 + _MORE_HOST) + _MORE_HOST_MS:
        return None
    comparison = "" if usual_ms is None else f", the reference's {_microseconds(usual_ms)}"
    message = (
        f"host-bound: the GPU executes a call in {_microseconds(submission.median_ms)}, and the host needs "
        f"{_microseconds(host_ms)} to launch one{comparison}"
    )
    return finding(Code.HOST_BOUND, message, host_ms=host_ms, gpu_ms=submission.median_ms)


def _times_launches_in_windows(side: Samples) -> bool:
    return side.windows is not None and side.windows.host_ms is not None


def _microseconds(value_ms: float) -> str:
    return f"{value_ms * 1e3:.3g} us" if value_ms < 1 else f"{value_ms:.3g} ms"
