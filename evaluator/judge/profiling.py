"""One more call of a correct submission, under a profiler in its own runner: where its time goes, as evidence.

It is neither timed nor compared, so nothing that the profiler costs is in a time, and nothing that it says is in a
verdict: a submission can tell its profiler what it likes.
"""

import math

import torch
from msgspec.structs import replace

from evaluator.cuda_source.kernel_names import is_own, joined
from evaluator.findings import Code, finding
from evaluator.judge.counters import counters
from evaluator.judge.derived import derived
from evaluator.judge.place import Place
from evaluator.judge.resource_desk import ResourceDesk
from evaluator.judge.seeds import fresh_seed
from evaluator.judge.session import Stage
from evaluator.judge.trees import place
from evaluator.judge.workshop import Workshop
from evaluator.protocol.frames import Items, Profiled, ProfiledCall, Table
from evaluator.records import Fault, KernelUse, ProfilerKind, Profiling

_SHOWN = 32


def profiling(shop: Workshop) -> Profiling:
    """Have the submission profiled, by all that was asked for. What fails becomes a finding: the verdict is known."""
    desk = shop.profiling_desk()
    found = _watched(shop, desk)
    match shop.terms.options.profile:
        case ProfilerKind.NCU:
            return replace(found, counters=counters(shop, desk))
        case ProfilerKind.TORCH | None:
            return found


def _watched(shop: Workshop, desk: ResourceDesk) -> Profiling:
    """Have PyTorch's profiler watch a call in a runner."""
    printed = shop.output
    with shop.runner(shop.source, desk) as runner:
        fault = runner.load()
        constructed = fault if fault is not None else runner.construct()
        answer = constructed if isinstance(constructed, Fault) else _asked(shop, runner)
    shop.output = printed  # What the profiler prints is not the submission's.
    if isinstance(answer, Fault):
        why = finding(Code.NOT_PROFILED, f"the profiled call failed: {answer.finding.message}"[:1000])
        return Profiling([], 0, 0, 0.0, None, desk.resources, why)
    return described(answer, desk, gpu=shop.terms.gpu is not None)


def described(answer: Profiled, desk: ResourceDesk, *, gpu: bool) -> Profiling:
    """Put into a record what a runner says it saw, as far as that can be a profile at all."""
    seen = [each for each in answer.kernels if math.isfinite(each.time_us)]
    built = joined(desk.device_code)
    uses = [
        KernelUse(each.name, each.launches, each.time_us, is_own(each.name, built) if gpu else None) for each in seen
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
        resources=desk.resources,
    )


def _asked(shop: Workshop, runner: Place) -> Profiled | Fault:
    """Lay out inputs like those of a timed call, and have the runner make a call of them under its profiler."""
    reference, seed = shop.reference, fresh_seed()
    inputs = reference.draw(seed)
    gradients = None
    if reference.problem.backward:
        outputs = reference.forward(inputs, derived(seed, b"in forward"))
        gradients = reference.output_gradients(outputs, derived(seed, b"gradients"))
    values = [("args", inputs.args), ("kwargs", inputs.kwargs), ("gradient", gradients or [])]
    placed = place(values, runner.memory.inputs)
    placed.write()
    if shop.terms.gpu is not None:
        torch.cuda.synchronize()
    args, kwargs, back = placed.nodes
    if not isinstance(kwargs, Table) or not isinstance(back, Items):
        raise TypeError("keyword arguments are a table, gradients a list")
    frame = ProfiledCall(args=args, kwargs=kwargs, output_gradients=None if gradients is None else back)
    # Three calls, under a profiler that has to start.
    answer = runner.session.ask(frame, Stage.CALL, 3 * shop.call_timeout_s + _PROFILER_S)
    return answer if isinstance(answer, Profiled | Fault) else runner.session.out_of_place(answer)


_PROFILER_S = 30.0
"""Starting CUPTI and reading its records takes seconds on a machine that is busy."""
