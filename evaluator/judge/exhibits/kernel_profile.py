"""Profile of one more call of a correct submission, by a profiler in a separate runner, as evidence.

The call is neither timed nor compared. The profiler's cost is therefore in no time, and its report is in no verdict: a
submission can manipulate the profiler.
"""

import math

import torch
from msgspec.structs import replace

from evaluator.cuda_source.symbols import is_own
from evaluator.findings import Code, finding
from evaluator.judge.context.grade_context import GradeContext
from evaluator.judge.exhibits.hardware_counters import counters
from evaluator.judge.reference.call_plan import CallPlan
from evaluator.judge.runners.build_service import ResourceUsageService
from evaluator.judge.runners.jit_kernels import claimed_resources, own_names, read_kernels
from evaluator.judge.runners.runner_faults import Stage, unexpected_frame
from evaluator.judge.setup.seed_book import fresh_seed
from evaluator.judge.tensors.pytree import lay_out
from evaluator.judge.trial.model_runner import ModelRunner
from evaluator.protocol.frames import DictItems, Items, Profiled, ProfiledCall
from evaluator.records import Fault, KernelResources, KernelUse, ProfilerKind, Profiling

_SHOWN = 32


def profiling(context: GradeContext) -> Profiling:
    """Profile the submission with the requested profilers. A failure becomes a finding; the verdict stands."""
    build_service = context.build_services.with_resource_usage()
    profile = _torch_profile(context, build_service)
    match context.terms.options.profile:
        case ProfilerKind.NCU:
            return replace(profile, counters=counters(context, build_service))
        case ProfilerKind.TORCH | None:
            return profile


def _torch_profile(context: GradeContext, build_service: ResourceUsageService) -> Profiling:
    """Profile a call in a runner with PyTorch's profiler."""
    printed = context.output
    with context.runners.start(context.source, build_service) as runner:
        fault = runner.load()
        constructed = fault if fault is not None else runner.construct()
        answer = constructed if isinstance(constructed, Fault) else _profiled_call(context, runner)
        claims = [] if isinstance(answer, Fault) else _runner_resources(context, runner)
    context.output = printed  # Discard the output of the profiled run.
    if isinstance(answer, Fault):
        failure = finding(Code.NOT_PROFILED, f"the profiled call failed: {answer.finding.message}"[:1000])
        return Profiling([], 0, 0, 0.0, None, build_service.resources, failure)
    profile = described(answer, build_service, gpu=context.terms.gpu is not None, source=context.source)
    return replace(profile, resources=[*profile.resources, *claims])


def _runner_resources(context: GradeContext, runner: ModelRunner) -> list[KernelResources]:
    """Return the resources of kernels that the runner's process compiled, as that process reports them."""
    if context.terms.gpu is None:
        return []
    compiled = read_kernels(runner.session, context.source)
    return [] if compiled is None else claimed_resources(compiled)


def described(answer: Profiled, build_service: ResourceUsageService, *, gpu: bool, source: str = "") -> Profiling:
    """Return the record of a runner's report, without invalid times. `source` names kernels that no library holds."""
    valid = [kernel for kernel in answer.kernels if math.isfinite(kernel.time_us)]
    built = own_names(build_service, source)
    uses = [
        KernelUse(kernel.name, kernel.launches, kernel.time_us, is_own(kernel.name, built) if gpu else None)
        for kernel in valid
    ]
    uses.sort(key=lambda use: -use.time_us)
    time_us = math.fsum(use.time_us for use in uses)
    own_us = math.fsum(use.time_us for use in uses if use.own)
    return Profiling(
        kernels=uses[:_SHOWN],
        other_kernels=answer.others + max(len(uses) - _SHOWN, 0),
        launches=sum(use.launches for use in uses),
        time_us=time_us,
        own_share=own_us / time_us if gpu and time_us > 0 else None,
        resources=build_service.resources,
    )


def _profiled_call(context: GradeContext, runner: ModelRunner) -> Profiled | Fault:
    """Write inputs like those of a timed call, and ask the runner for a profiled call."""
    plan = CallPlan(context.reference, fresh_seed())
    values = [("args", plan.inputs.args), ("kwargs", plan.inputs.kwargs), ("gradient", plan.gradients or [])]
    placed = lay_out(values, runner.memory.inputs)
    placed.write()
    if context.terms.gpu is not None:
        torch.cuda.synchronize()
    args, kwargs, back = placed.nodes
    if not isinstance(kwargs, DictItems) or not isinstance(back, Items):
        raise TypeError("keyword arguments are a table, gradients a list")
    frame = ProfiledCall(args=args, kwargs=kwargs, output_gradients=None if plan.gradients is None else back)
    # Three calls, under a profiler that first has to start.
    answer = runner.session.ask(frame, Stage.CALL, 3 * context.call_timeout_s + _PROFILER_S)
    return answer if isinstance(answer, Profiled | Fault) else unexpected_frame(answer)


_PROFILER_S = 30.0
"""Starting CUPTI and reading the records takes seconds on a busy machine."""
