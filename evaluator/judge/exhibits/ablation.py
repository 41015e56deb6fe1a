"""Ablation of a submission: calls in fresh runners without own kernels, or without PyTorch's operations.

If the answer is right without own kernels, the own kernels did nothing. If the answer is right without PyTorch's
operations, own kernels do all of the work. The judge compares the answers; no runner can influence the comparison.

Operations are counted in an additional call of the runner for the ablation of own kernels. The verdict on the answers
and the times come from other runners: in this one, own functions are wrapped.
"""

import math
import re
from collections.abc import Callable, Collection
from enum import Enum
from typing import Literal, NamedTuple

from msgspec.structs import replace

from evaluator.cuda_source.symbols import plain_name, qualified
from evaluator.findings import Trait, has_trait
from evaluator.judge.context.grade_context import GradeContext
from evaluator.judge.runners.build_service import EmptyKernelService
from evaluator.judge.runners.runner_faults import Stage
from evaluator.judge.trial.model_runner import ModelRunner
from evaluator.languages.registry import jit_kernels
from evaluator.protocol.frames import Count, Counted, LeaveOut, LeftOut
from evaluator.records import DeviceKind, Fault, Profile, Profiling

_SECONDS = 60.0
"""Replacing about two thousand operations takes one or two seconds."""


class AblationResult(Enum):
    """Result of a call with one side left out.

    `UNTOLD`: the runner died or timed out, without a meaningful result. `UNTRIED`: the submission has nothing to leave
    out. The difference matters, because a submission can provoke the death of the runner.
    """

    RIGHT = "right"
    WRONG = "wrong"
    UNTOLD = "untold"
    UNTRIED = "untried"


class AblationResults(NamedTuple):
    """Ablation results of both sides."""

    kernels: AblationResult = AblationResult.UNTRIED
    library: AblationResult = AblationResult.UNTRIED


class CountedAblation(NamedTuple):
    """Result of the ablation of own kernels, and the counts of a complete call before; None if the count failed."""

    result: AblationResult
    counted: Counted | None


def right_without(
    context: GradeContext, part: Literal["kernels", "library"], build_service: EmptyKernelService | None = None
) -> AblationResult:
    """Return whether a call in a fresh runner is right while `part` is left out.

    A complete call comes first, for the one-time work of the submission. On `cuda`, a `build_service` provides
    libraries with empty kernels for both calls. The runner leaves out the launches of Triton and NVRTC in the second.
    """
    return _ablated(context, part, build_service, counts=False).result


def counted_without_kernels(context: GradeContext) -> CountedAblation:
    """Count a call in a fresh runner, then leave out own kernels."""
    return _ablated(context, "kernels", None, counts=True)


def counted_alone(context: GradeContext) -> Counted | None:
    """Count a call in a fresh runner, without an ablation."""
    return _ablated(context, None, None, counts=True).counted


def _ablated(
    context: GradeContext,
    part: Literal["kernels", "library"] | None,
    build_service: EmptyKernelService | None,
    *,
    counts: bool,
) -> CountedAblation:
    frames = None if part is None else _frames(context, part, build_service)
    schedules = context.seeds.schedules()
    counted = None
    with context.runners.start(
        context.source, context.build_services.for_source(context.source) if build_service is None else build_service
    ) as model_runner:
        if frames is not None and not _is_confirmed(model_runner, frames.prepare):
            return CountedAblation(AblationResult.UNTOLD, None)
        constructed = model_runner.load() or model_runner.construct()
        if isinstance(constructed, Fault):
            return CountedAblation(_result_of_failure(build_service, frames), None)
        # One for all calls: a second would not know the last call's outputs, which stay in the runner's memory.
        trial_runner = model_runner.trial_runner(model_runner.sites(constructed))

        def fault_of_call(index: int) -> Fault | None:
            seed = context.seeds.distribution_mix.seed_for(Profile.AS_GIVEN)
            schedule = next(schedules) if context.terms.device is DeviceKind.EMULATED else None
            timeout_s = context.call_timeout_s
            return trial_runner.run(index, seed, schedule=schedule, timeout_s=timeout_s, explain=False).fault

        if fault_of_call(0) is not None:
            return CountedAblation(_result_of_failure(build_service, frames), None)
        if counts:
            counted = count_ops(model_runner, lambda: fault_of_call(1), context.call_timeout_s)
        if part is None:
            return CountedAblation(AblationResult.UNTRIED, counted)
        if frames is not None:
            model_runner.session.let_go()  # A runner is stopped between calls.
            if not _is_confirmed(model_runner, frames.begin):
                return CountedAblation(AblationResult.UNTOLD, counted)
        fault = fault_of_call(2 if counts else 1)
    return CountedAblation(_result(fault, build_service, frames), counted)


def _result(fault: Fault | None, build_service: EmptyKernelService | None, frames: "_Frames | None") -> AblationResult:
    """Return the meaning of the call with one side left out."""
    if fault is not None and has_trait(fault.finding, Trait.NO_ANSWER):
        return _result_of_failure(build_service, frames)
    if build_service is not None and not build_service.left_out and frames is None:
        return AblationResult.UNTRIED
    return AblationResult.RIGHT if fault is None else AblationResult.WRONG


class _Frames(NamedTuple):
    """Requests of an ablation: before the submission is loaded, and before the call with one side left out."""

    prepare: LeaveOut
    begin: LeaveOut


def _frames(
    context: GradeContext, part: Literal["kernels", "library"], build_service: EmptyKernelService | None
) -> _Frames | None:
    """Return the requests to the runner; None if the libraries of `build_service` alone make the difference."""
    if build_service is None:
        return _Frames(LeaveOut(part, begin=False), LeaveOut(part, begin=True))
    jit_names, emptied = jit_kernels(context.source), build_service.kernels
    names = jit_names if emptied is None else [name for name in jit_names if name in emptied]
    if not names:
        return None
    # Without names, the runner leaves out every launch.
    return _Frames(LeaveOut("jit", begin=False), LeaveOut("jit", begin=True, kernels=[] if emptied is None else names))


def _result_of_failure(build_service: EmptyKernelService | None, frames: _Frames | None) -> AblationResult:
    """Return the meaning of a failure: with empty kernels, a failure shows that the kernels are necessary."""
    if build_service is not None and build_service.left_out:
        return AblationResult.WRONG
    return AblationResult.UNTRIED if frames is None else AblationResult.UNTOLD


def _is_confirmed(model_runner: ModelRunner, frame: LeaveOut) -> bool:
    return isinstance(model_runner.session.ask(frame, Stage.CALL, _SECONDS), LeftOut)


_MOST_KERNELS = 6
"""Each kernel takes a runner of its own. A kernel with less time than six others hardly changes a share."""
_LIBRARYS_NAMES = re.compile(
    r"^(?:ampere|volta|turing|maxwell|hopper|blackwell|sm\d+|cutlass|nvjet|cublas|cudnn|xmma|gemv|gemm|splitK|wgrad|dgrad"
    r"|implicit_convolve|explicit_convolve|cask|flash_fwd|fmha|bn_fw|softmax_warp|elementwise_kernel|vectorized_)",
    re.IGNORECASE,
)
"""Names of kernels of NVIDIA's libraries and of PyTorch, outside of namespaces."""


def needed_alone(context: GradeContext, profile: Profiling) -> Profiling:
    """Return the profile with only those own kernels that the answer needs.

    Own kernels are known by name, and a submission may name an idle kernel like a library's. A kernel with a library's
    name counts as own only if the answer is right without PyTorch's operations.
    """
    names = sorted({_plain(use.name) for use in profile.kernels if use.own})
    doubtful = {name for name in names if _LIBRARYS_NAMES.match(name.rpartition("::")[2])}
    if doubtful and right_without(context, "library") is not AblationResult.RIGHT:
        names = [name for name in names if name not in doubtful]
    else:
        doubtful = set()
    heaviest = list(dict.fromkeys(_plain(use.name) for use in profile.kernels if use.own and _plain(use.name) in names))
    idle = set()
    if len(heaviest) > 1:  # A single kernel was left out before.
        for name in heaviest[:_MOST_KERNELS]:
            build_service = context.build_services.with_empty_kernels([name])
            if right_without(context, "kernels", build_service) is AblationResult.RIGHT:
                idle.add(name)
    return _without_own(profile, doubtful | idle)


def _without_own(profile: Profiling, names: Collection[str]) -> Profiling:
    if not names or profile.own_share is None:
        return profile
    uses = [replace(use, own=False) if use.own and _plain(use.name) in names else use for use in profile.kernels]
    lost_us = math.fsum(use.time_us for use in profile.kernels if use.own and _plain(use.name) in names)
    share = profile.own_share - lost_us / profile.time_us if profile.time_us > 0 else 0.0
    return replace(profile, kernels=uses, own_share=min(max(share, 0.0), 1.0))


def _plain(profiled: str) -> str:
    return plain_name(profiled) if profiled.startswith("_Z") else qualified(profiled)


def count_ops(model_runner: ModelRunner, call: Callable[[], Fault | None], timeout_s: float) -> Counted | None:
    """Count the operations of `call`. None if the call or the count fails, or the answer is wrong.

    The runner reports the count, and a submission can forge the report (see `own_kernels.py`).
    """
    if _count(model_runner, timeout_s) is None:
        return None
    return None if call() is not None else _count(model_runner, timeout_s)


def _count(model_runner: ModelRunner, timeout_s: float) -> Counted | None:
    model_runner.session.let_go()  # A runner is stopped between calls.
    answer = model_runner.session.ask(Count(), Stage.CALL, timeout_s)
    return answer if isinstance(answer, Counted) else None
