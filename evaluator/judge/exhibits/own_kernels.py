"""Share of a submission's own kernels in the work of a call, and the verdict for a required share.

There are four kinds of evidence:

- Builds: the judge inspects all libraries for kernels and for imports of PyTorch operations. A share of zero from the
  builds cannot be disputed.
- Ablation (`ablation.py`): kernels did nothing if the answer is right without them. A count of zero library operations
  is false if the answer is wrong without library operations.
- Work: FLOP and bytes of PyTorch's operations, which own kernels cannot have computed, against the work that the
  reference needs. Copies and decoys have launches, calls and time.
- Reports of the runner: counts and profiles. A submission can invent launches or hide library operations.

A report can therefore cost a submission the pass. Without a report the share is `unknown`, which is no pass for a
required share. If a runner died during an ablation, the lower bound of the share is zero, and again there is no pass.
"""

import re
from typing import NamedTuple

from msgspec.structs import replace

from evaluator.compile.binary_files import ImportedSymbols
from evaluator.cuda_source.symbols import Kernels
from evaluator.findings import Code, finding
from evaluator.judge.exhibits.ablation import AblationResult, AblationResults
from evaluator.judge.reference.call_plan import CallPlan
from evaluator.judge.reference.reference import Reference
from evaluator.judge.setup.operation_cost import Cost, TrafficCounter
from evaluator.judge.setup.seed_book import fresh_seed
from evaluator.languages.registry import MARKS
from evaluator.protocol.frames import Counted
from evaluator.protocol.operations import moved_bytes_of
from evaluator.protocol.pytree import tensors_of
from evaluator.records import DeviceKind, Fault, OwnKernels, Profiling, ShareBasis, Status

_FEW = 1 / 16
"""A smaller part of the inputs and outputs, for instance a list of lengths, cannot hold the work of a call."""


class NeededWork(NamedTuple):
    """Work of the reference: `cost` of the computing `operations`, and `least_bytes` of inputs and outputs.

    A program with a single operation moves at least `least_bytes`.
    """

    cost: Cost
    least_bytes: int
    operations: frozenset[str] = frozenset()

    def most_share(self, counted: Counted) -> float:
        """Return the upper limit of the share of own kernels: PyTorch's operations did the rest.

        A reference without computing operations, such as a transposition, sets no limit.
        """
        return _own_share(self._library(counted), self.cost) if self.cost.operations else 1.0

    def least_share(self, counted: Counted) -> float:
        """Return the lower limit: an operation that the reference lacks may stand for several operations.

        NVIDIA's libraries and NumPy may have done any part of the work.
        """
        if counted.library_launches or counted.exported_bytes > _FEW * self.least_bytes:
            return 0.0
        if self.operations.issuperset(counted.operations):
            return self.most_share(counted)
        return _own_share(self._library(counted), Cost(self.cost.flop, min(self.least_bytes, self.cost.moved_bytes), 0))

    def _library(self, counted: Counted) -> Cost:
        """Return PyTorch's work. For a reference without products, bytes alone are compared."""
        return Cost(counted.flop if self.cost.flop else 0, counted.moved_bytes, counted.library_calls)


def needed_work(reference: Reference) -> NeededWork:
    """Count the work of one call of the reference on inputs of its own."""
    plan = CallPlan(reference, fresh_seed())
    least_bytes = moved_bytes_of(tensors_of(list(plan.inputs)), plan.gradients)

    with TrafficCounter(computing=True) as traffic:
        for honest in plan.honest():
            least_bytes += moved_bytes_of(tensors_of(honest.result.outputs), honest.result.gradients)
    return NeededWork(traffic.cost, least_bytes, frozenset(traffic.names))


def _own_share(library: Cost, needed: Cost) -> float:
    needed_s = needed._replace(operations=0).nominal_s("cpu")
    library_s = library._replace(operations=0).nominal_s("cpu")
    return 1.0 if not library_s else max(1.0 - library_s / needed_s, 0.0) if needed_s else 0.0


_OTHER_COMPILERS = re.compile(rf"{MARKS}|numba|pycuda|cuModuleLoad")
_OTHER_CALLERS = re.compile(r"ctypes|cffi|CDLL")
"""Ways for Python to call a library's functions without the loaded module."""
_MAX_KERNELS = 32


class OwnKernelEvidence(NamedTuple):
    """Evidence about own kernels: `counted` and `profiling` by the runner; `libraries` counts built libraries."""

    device: DeviceKind
    kernels: Kernels
    libraries: int
    source: str
    counted: Counted | None = None
    profiling: Profiling | None = None
    needs: AblationResults = AblationResults()
    imports: ImportedSymbols = ImportedSymbols()
    needed: NeededWork | None = None


def own_kernels(evidence: OwnKernelEvidence) -> OwnKernels:
    """Return the share that follows from the evidence."""
    kernels, library = evidence.needs
    limited = _limited_by_work(evidence, _unlimited_share(evidence))
    return replace(
        limited,
        share_low=0.0 if AblationResult.UNTOLD in (kernels, library) else limited.share_low,
        right_without_kernels=_RIGHT.get(kernels),
        right_without_library=_RIGHT.get(library),
    )


_RIGHT = {AblationResult.RIGHT: True, AblationResult.WRONG: False}


def _unlimited_share(evidence: OwnKernelEvidence) -> OwnKernels:
    if _can_have_none(evidence):
        return _share(evidence, ShareBasis.BUILT, 0.0, 0.0)
    if evidence.needs.kernels is AblationResult.RIGHT:
        return _unknown(evidence) if _has_other_functions(evidence) else _share(evidence, ShareBasis.LEFT_OUT, 0.0, 0.0)
    counted = evidence.counted
    if evidence.needs.library is AblationResult.WRONG and counted is not None and counted.library_calls == 0:
        return _share(evidence, ShareBasis.REFUTED, 0.0, 0.0)
    match evidence.device:
        case DeviceKind.EMULATED if counted is not None:
            by_launches = _share(evidence, ShareBasis.LAUNCHES, counted.launches, counted.library_calls)
            return replace(by_launches, share_low=0.0) if _goes_past_the_dispatcher(evidence.imports) else by_launches
        case DeviceKind.CPU if counted is not None:
            return _by_calls(evidence, counted)
        case DeviceKind.CUDA if (profile := evidence.profiling) is not None and profile.own_share is not None:
            return _by_profile(evidence, profile.own_share, profile.time_us / 1e3)
        case _:
            return _unknown(evidence)


def _limited_by_work(evidence: OwnKernelEvidence, share: OwnKernels) -> OwnKernels:
    """Return a share of launches, calls or time, limited by the work of PyTorch's operations."""
    counted, needed = evidence.counted, evidence.needed
    if counted is None or needed is None or share.share_high == 0.0:
        return share
    most, least = needed.most_share(counted), needed.least_share(counted)
    return replace(
        share,
        basis=ShareBasis.WORK if most < share.share_high else share.basis,
        share_high=min(share.share_high, most),
        share_low=min(share.share_low, most, least),
    )


def _unknown(evidence: OwnKernelEvidence) -> OwnKernels:
    return OwnKernels(ShareBasis.UNKNOWN, 0.0, 1.0, None, None, evidence.kernels.names[:_MAX_KERNELS])


def _goes_past_the_dispatcher(imports: ImportedSymbols) -> bool:
    """Return whether a library may compute with PyTorch past the count and the ablation."""
    return bool(imports.beside) or not imports.readable


def _has_other_functions(evidence: OwnKernelEvidence) -> bool:
    """Return whether, on `cpu`, functions may run past the count and the ablation."""
    other = evidence.imports.classes or not evidence.imports.readable
    return evidence.device is DeviceKind.CPU and (other or _OTHER_CALLERS.search(evidence.source) is not None)


def _can_have_none(evidence: OwnKernelEvidence) -> bool:
    """Return whether no build holds a kernel (on `cpu`: a function), and the text names no other compiler.

    A text that hides the name of another compiler counts as naming none.
    """
    if _OTHER_COMPILERS.search(evidence.source) is not None:
        return False
    return evidence.libraries == 0 if evidence.device is DeviceKind.CPU else not evidence.kernels.device_code


def _by_profile(evidence: OwnKernelEvidence, own_share: float, total_ms: float) -> OwnKernels:
    """Return the profile's share. The share is a lower bound if own kernels may have unknown names."""
    own_ms = min(max(own_share, 0.0), 1.0) * total_ms
    profiled = _share(evidence, ShareBasis.PROFILE, own_ms, total_ms - own_ms)
    all_known = bool(evidence.kernels.names) and _OTHER_COMPILERS.search(evidence.source) is None
    return profiled if all_known else replace(profiled, share_high=1.0)


def _by_calls(evidence: OwnKernelEvidence, counted: Counted) -> OwnKernels:
    """Return bounds of the share: functions that call PyTorch count as own in the upper bound only.

    If a library imports PyTorch's operations, any function may call PyTorch, unless the answer is right without them.
    """
    imports = evidence.imports
    computes = imports.compute and evidence.needs.library is not AblationResult.RIGHT
    all_mixed = computes or _goes_past_the_dispatcher(imports)
    mixed = counted.own_calls if all_mixed else min(counted.mixed_calls, counted.own_calls)
    high = _share(evidence, ShareBasis.CALLS, counted.own_calls, counted.library_calls)
    low = _share(evidence, ShareBasis.CALLS, counted.own_calls - mixed, counted.library_calls)
    most = 1.0 if _has_other_functions(evidence) else high.share_high
    return OwnKernels(ShareBasis.CALLS, low.share_low, most, high.own, high.library, high.kernels)


def _share(evidence: OwnKernelEvidence, basis: ShareBasis, own_amount: float, library_amount: float) -> OwnKernels:
    share = own_amount / (own_amount + library_amount) if own_amount > 0 else 0.0
    kernels = evidence.kernels.names[:_MAX_KERNELS]
    return OwnKernels(basis, share, share, float(own_amount), float(library_amount), kernels)


def too_little(share: OwnKernels | None, required: float | None) -> Fault | None:
    """Return a rejection if own kernels certainly did less than `required`."""
    if share is None or required is None or share.share_high >= required:
        return None
    operations = _counted(share.library, "library operation", "library operations")
    reason = {
        ShareBasis.BUILT: "no build of the submission contains a kernel",
        ShareBasis.LAUNCHES: f"a call has {_counted(share.own, 'launch', 'launches')} of own kernels and {operations}",
        ShareBasis.CALLS: f"a call has {_counted(share.own, 'call', 'calls')} of own functions and {operations}",
        ShareBasis.PROFILE: f"own kernels took {share.own:.3g} ms of a call's GPU time, others {share.library:.3g} ms",
        ShareBasis.LEFT_OUT: "without own kernels the answer was still correct",
        ShareBasis.REFUTED: "the count shows no PyTorch operation, but without PyTorch operations the answer was wrong",
        ShareBasis.WORK: f"PyTorch's operations do {_percent(1.0 - share.share_high)}, in FLOP and bytes",
        ShareBasis.UNKNOWN: "",
    }[share.basis]
    message = f"own kernels do {_percent(share.share_high)} of the work, {_percent(required)} is required: {reason}"
    return Fault(Status.REJECTED, finding(Code.TOO_LITTLE_OWN, message, share=share.share_high, required=required))


def not_known(share: OwnKernels | None, required: float | None) -> Fault | None:
    """Return an inconclusive verdict if own kernels may have done less than `required`."""
    if required is None or (share is not None and share.share_low >= required):
        return None
    between = "" if share is None else f": between {_percent(share.share_low)} and {_percent(share.share_high)}"
    message = f"{_percent(required)} of the work is required of own kernels, and their share is unknown{between}"
    return Fault(Status.INCONCLUSIVE, finding(Code.OWN_SHARE_UNKNOWN, message, required=required))


def _counted(number: float | None, one: str, several: str) -> str:
    """Return a number with its noun. Shares without counts have no number."""
    return f"{number or 0:g} {one if number == 1 else several}"


def _percent(share: float) -> str:
    return f"{share:.0%}" if share in (0.0, 1.0) or 0.005 <= share <= 0.995 else f"{share:.2%}"
