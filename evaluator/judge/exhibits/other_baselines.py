"""Additional baselines of the speedup: other forms of the reference, and another submission.

Each baseline is timed like any side, in a separate runner that ends before the submission's runner starts. Every output
is verified against the same expected values; PyTorch's default TF32 gets a tolerance for TF32. Baselines made from the
reference are cached for later grades of the problem. A cached baseline is valid while the reference takes as long as
beside the baseline; otherwise the baseline is measured again.
"""

import datetime
import hashlib
from collections.abc import Callable

import torch
from msgspec.structs import replace

from evaluator.cache.build_cache import forget, measured_once
from evaluator.findings import Code, finding
from evaluator.judge.compare.tensor_comparison import Comparison, Limit, Sides
from evaluator.judge.context.grade_context import GradeContext
from evaluator.judge.context.reference_timing import AS_REFERENCE, Reading
from evaluator.judge.reference.changing_weights import Sites
from evaluator.judge.setup.seed_book import fresh_seed
from evaluator.judge.trial import timing_loop
from evaluator.judge.trial.call_overhead import Overhead
from evaluator.judge.trial.model_runner import ModelRunner, own_tf32
from evaluator.judge.trial.trial_runner import TrialRunner
from evaluator.records import Baseline, BaselineKind, Fault, Samples, TensorCheck, Tf32
from evaluator.version import __version__

_MOVED = 0.02
"""Relative change of the reference's time above which a cached baseline is measured again."""
_RULES = 5
"""Version of the timing rules, in the cache key: baselines timed by other rules are not reused."""
TF32_FLOOR = 1e-2
"""Tolerance floor with TF32, relative to a row's root mean square.

Rounding the operands of a product to 10 bits causes an error of 2e-3 (see judge/compare/tolerance.py).
"""

_COMPILED = """\
import os, tempfile

with open("/proc/self/maps") as maps:
    cuda = next((line.split()[-1] for line in maps if "/libcuda.so" in line), None)
if cuda:
    os.environ.setdefault("TRITON_LIBCUDA_PATH", os.path.dirname(cuda))
for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
    os.environ[name] = os.path.join(tempfile.gettempdir(), name.lower())
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"

import torch
from model import Model


class ModelNew(Model):
    def __call__(self, *args, **kwargs):
        if self._compiled_call_impl is None:
            self.compile(mode={mode!r}, dynamic=False)
        return super().__call__(*args, **kwargs)
"""
"""The reference, compiled at its first call. Compiler output stays in the runner's private folder."""

_SOURCES = {
    BaselineKind.EAGER: AS_REFERENCE,
    BaselineKind.COMPILE: _COMPILED.format(mode=None),
    BaselineKind.COMPILE_MAX_AUTOTUNE: _COMPILED.format(mode="max-autotune-no-cudagraphs"),
}


class _Failed(Exception):
    """A baseline could not be timed; the message tells why."""


def measured(context: GradeContext, reference: Reading) -> list[Baseline]:
    """Time all requested baselines before the submission's runner starts. Speedups are added later.

    `reference` is the measurement of the reference just before.
    """
    empty = reference.overhead
    baselines = [
        _reference_baseline(context, kind, tf32, reference)
        for kind in context.terms.options.baselines
        for tf32 in _variants(context, kind)
    ]
    if (other := context.terms.options.speedup_of) is not None:
        plain = _unmeasured(
            BaselineKind.SUBMISSION, None if context.terms.gpu is None else own_tf32(context.terms.problem)
        )
        plain = replace(plain, name=other.name, sha256=other.sha256)
        try:
            baselines.append(replace(plain, samples=_timed(context, other.source, empty, None)))
        except _Failed as failed:
            baselines.append(_failure(plain, failed))
    return baselines


def _variants(context: GradeContext, kind: BaselineKind) -> list[Tf32 | None]:
    """Return the TF32 settings: PyTorch's default, then the problem's own, except for the eager reference.

    Every grade already measures the eager reference with the problem's own setting.
    """
    if context.terms.gpu is None:
        return [None]
    return [Tf32.DEFAULT] if kind is BaselineKind.EAGER else [Tf32.DEFAULT, own_tf32(context.terms.problem)]


def _reference_baseline(context: GradeContext, kind: BaselineKind, tf32: Tf32 | None, reference: Reading) -> Baseline:
    terms, unmeasured = context.terms, _unmeasured(kind, tf32)
    unmeasured = replace(unmeasured, reference_median_ms=reference.samples.median_ms)

    def measure() -> Baseline:
        return replace(unmeasured, samples=_timed(context, _SOURCES[kind], reference.overhead, tf32))

    device = [terms.device.value, terms.threads] if terms.gpu is None else [terms.gpu.uuid, terms.gpu.driver]
    text = hashlib.sha256(context.reference.source.encode()).hexdigest()
    problem = terms.problem
    mode = [problem.mode.value, problem.backward, problem.precision.value, terms.weights.value, terms.l2.value]
    parts = ["baseline", _RULES, kind.value, tf32, text, *mode, *device, torch.__version__, __version__, _SOURCES[kind]]
    try:
        baseline = measured_once(parts, Baseline, measure)
        if baseline.measured_at == unmeasured.measured_at:
            return baseline
        if _still_holds(baseline, reference):
            return replace(baseline, kept=True)
        forget(parts, Baseline)
        return measured_once(parts, Baseline, measure)
    except _Failed as failed:
        return _failure(unmeasured, failed)


def _still_holds(baseline: Baseline, reference: Reading) -> bool:
    """Return whether the reference takes as long as beside the cached baseline, within the measurement's spread."""
    then_ms, now_ms = baseline.reference_median_ms, reference.samples.median_ms
    spread_ms = reference.samples.overhead_iqr_ms + reference.samples.iqr_ms / 2
    return then_ms is not None and abs(then_ms - now_ms) <= max(_MOVED * now_ms, spread_ms)


def _timed(context: GradeContext, source: str, empty: Overhead, tf32: Tf32 | None) -> Samples:
    """Time one program. A JIT compiler runs in the first call, which has the time limit of a build."""
    context.settle()
    trusted = source in _SOURCES.values()
    build_service = None if trusted else context.build_services.for_source(source)
    with context.runners.start(source, build_service, trusted=trusted) as model_runner:
        loaded = model_runner.load(tf32)
        constructed = loaded if loaded is not None else model_runner.construct()
        if isinstance(constructed, Fault):
            raise _Failed(constructed.finding.message)
        sites = model_runner.sites(constructed)
        if sites.unmatched:
            raise _Failed(f"its weights cannot be changed: {sites.why_not}")
        trial_runner = (
            _trial_runner(context, model_runner, tf32, sites) if trusted else model_runner.trial_runner(sites)
        )
        first = trial_runner.run(
            0, fresh_seed(), timeout_s=max(context.call_timeout_s, context.terms.options.build_timeout_s)
        )
        if first.fault is not None:
            raise _Failed(first.fault.finding.message)
        side = timing_loop.side(
            "baseline",
            trial_runner,
            iter(fresh_seed, None),
            empty,
            context.call_timeout_s,
            trusted=trusted,
            spot_checks=not trusted,
            watch=context.begin_side(),
        )
        if context.gpu_session is not None:
            context.gpu_session.monitor.sample()
    if side.samples is None or side.failed is not None:
        raise _Failed(side.failed.fault.finding.message if side.failed and side.failed.fault else "it has no samples")
    return side.samples


def _trial_runner(context: GradeContext, model_runner: ModelRunner, tf32: Tf32 | None, sites: Sites) -> TrialRunner:
    """Create the trials of a reference's form: with the original inputs, within the tolerance of the TF32 setting."""
    compare = context.backend.compare if tf32 is not Tf32.DEFAULT else _with_room(context.backend.compare)
    rule = context.terms.options.tolerance
    return TrialRunner(context.reference, model_runner.clock, model_runner.memory, rule, compare, sites=sites)


def _with_room(compare: Comparison) -> Comparison:
    def compared(path: str, sides: Sides, bounds: Limit) -> Callable[[], TensorCheck]:
        wider = None if bounds is None else bounds._replace(floor=max(bounds.floor, TF32_FLOOR))
        return compare(path, sides, wider)

    return compared


def _unmeasured(kind: BaselineKind, tf32: Tf32 | None) -> Baseline:
    return Baseline(
        kind=kind,
        tf32=tf32,
        name=None,
        sha256=None,
        measured_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
        kept=False,
        reference_median_ms=None,
        samples=None,
        speedup=None,
        speedup_low=None,
        speedup_high=None,
        significant=None,
        finding=None,
    )


def _failure(baseline: Baseline, failed: _Failed) -> Baseline:
    message = f"the baseline {baseline.kind.value} could not be timed: {failed}"
    return replace(baseline, finding=finding(Code.BASELINE_FAILED, message[:1000]))
