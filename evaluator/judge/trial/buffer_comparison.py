"""Comparison of buffers that forward updates, such as running statistics, with the reference's buffers.

The outputs of a call do not depend on such updates, so a difference is a finding and no fault. One more call is made
after the checked calls. The runner reports its buffers before and after. The reference makes the same call from the
buffers reported before: earlier calls of the two sides differ in number.
"""

import itertools
from collections.abc import Mapping
from typing import NamedTuple

import torch

from evaluator.devices.out_of_memory import out_of_memory
from evaluator.findings import Code, finding
from evaluator.judge.compare.tensor_comparison import Sides, compare
from evaluator.judge.compare.tolerance import bounds, usual_floor
from evaluator.judge.faults.runner_faults import Stage
from evaluator.judge.inputs.changing_weights import Sites
from evaluator.judge.reference.call_plan import CallPlan
from evaluator.judge.reference.reference import Reference
from evaluator.judge.tensors.pytree import dtype_name
from evaluator.judge.trial.model_runner import ModelRunner
from evaluator.protocol.frames import BufferValue, BufferValues, ReadBuffers
from evaluator.protocol.frames.bounds import MOST_BUFFER_BYTES, MOST_BUFFERS
from evaluator.records import Fault, Finding, Problem, Profile, ToleranceRule

_NAMED = 3
_MOST_BYTES = 1 << 20
"""Limit on all compared buffers together: a frame with more data would be refused."""

Buffers = dict[str, torch.Tensor]


class _Expected(NamedTuple):
    """The reference's buffers after a call: for the comparison, and in the problem's precision."""

    exact: Buffers
    honest: Buffers


class BufferComparison:
    """Buffers that the reference updates while a runner's calls are checked."""

    def __init__(self, reference: Reference) -> None:
        """Store the reference's small buffers before the checked calls. Counters, of integer dtypes, are left out."""
        self._reference = reference
        buffers = reference.model.named_buffers()
        small = {name: each for name, each in buffers if each.is_floating_point() and _bytes(each) <= MOST_BUFFER_BYTES}
        total_bytes = itertools.accumulate(map(_bytes, small.values()))
        fitting = [name for name, end_bytes in zip(small, total_bytes, strict=True) if end_bytes <= _MOST_BYTES]
        self._before = {name: small[name].clone() for name in fitting[:MOST_BUFFERS]}

    @property
    def updated(self) -> list[str]:
        """Names of the buffers that the reference has changed since."""
        now = dict(self._reference.model.named_buffers())
        return [name for name, before in self._before.items() if not torch.equal(before, now[name])]

    def findings(self, model_runner: ModelRunner, sites: Sites, timeout_s: float) -> list[Finding]:
        """Make one more call, and return a finding for buffers that are missing, stale or wrong afterwards.

        Without memory for the comparison, nothing is compared.
        """
        try:
            with out_of_memory():
                return self._compared(model_runner, sites, timeout_s)
        except MemoryError:
            return []

    def _compared(self, model_runner: ModelRunner, sites: Sites, timeout_s: float) -> list[Finding]:
        names = self.updated
        before = self._read(model_runner, names, timeout_s) if names else None
        if before is None:
            return []
        seed = model_runner.spec.distribution_mix.seed_for(Profile.AS_GIVEN)
        trial_runner = model_runner.trial_runner(sites)
        if trial_runner.run(0, seed, timeout_s=timeout_s, own_values=True).fault is not None:
            return []
        after = self._read(model_runner, list(before), timeout_s)
        plan = CallPlan(self._reference, seed)
        if after is None or len(plan.blocks) > 1:
            return []
        both = {name: (old, after[name]) for name, old in before.items() if name in after}
        expected = expected_buffers(plan, {name: old for name, (old, _) in both.items()})
        return differences(self._reference.problem, names, both, expected)

    def _read(self, model_runner: ModelRunner, names: list[str], timeout_s: float) -> Buffers | None:
        """Return the runner's values of buffers that exist there; None if the runner fails."""
        model_runner.session.let_go()  # A runner is stopped between calls.
        answer = model_runner.session.ask(ReadBuffers(names=names), Stage.CALL, timeout_s)
        if isinstance(answer, Fault) or not isinstance(answer, BufferValues):
            return None
        own = dict(self._reference.model.named_buffers())
        read = {name: tensor_of(answer.values[name], own[name]) for name in names if name in answer.values}
        return {name: value for name, value in read.items() if value is not None}


def tensor_of(value: BufferValue, like: torch.Tensor) -> torch.Tensor | None:
    """Return a reported buffer as a tensor; None unless dtype, shape and length are those of `like`."""
    if (value.dtype, value.shape, len(value.data)) != (dtype_name(like.dtype), tuple(like.shape), _bytes(like)):
        return None
    if not value.data:
        return torch.empty_like(like)
    return torch.frombuffer(bytearray(value.data), dtype=like.dtype).reshape(like.shape).to(like.device)


def expected_buffers(plan: CallPlan, before: Mapping[str, torch.Tensor]) -> _Expected:
    """Return the reference's buffers after the call of `plan`, which starts from the buffers `before`."""
    twin = plan.reference.twin()
    for model in filter(None, (twin.model, twin.exact_model)):
        buffers = dict(model.named_buffers())
        for name, value in before.items():
            buffers[name].copy_(value)
    result = twin.expected(plan.inputs, plan.random_seed, plan.gradients)
    honest = dict(twin.model.named_buffers())
    exact = dict(twin.exact_model.named_buffers()) if result.in_float64 and twin.exact_model is not None else honest
    return _Expected({name: exact[name] for name in before}, {name: honest[name] for name in before})


def differences(
    problem: Problem, names: list[str], both: Mapping[str, tuple[torch.Tensor, torch.Tensor]], expected: _Expected
) -> list[Finding]:
    """Return at most one finding each for missing, unchanged and wrong buffers."""
    missing = [name for name in names if name not in both]
    wrong = [
        name
        for name, (_, after) in both.items()
        if not _is_right(problem, Sides(after, expected.exact[name], expected.honest[name]))
    ]
    stale = [name for name in wrong if torch.equal(*both[name])]
    other = [name for name in wrong if name not in stale]
    kinds = [
        (missing, "ModelNew has no such buffer"),
        (stale, "ModelNew does not"),
        (other, "ModelNew's differ"),
    ]
    return [
        finding(Code.BUFFERS_DIFFER, f"the reference updates {_listed(found)}; {text}", buffers=len(found))
        for found, text in kinds
        if found
    ]


def _is_right(problem: Problem, sides: Sides) -> bool:
    """Return whether a buffer is within the widest tolerance of an output.

    A mean over values of both signs is small beside its terms. For a mean of 8 million values, one fp32 accumulator
    is off by 1.4 floors.
    """
    dtype = sides.honest.dtype
    limit = bounds(ToleranceRule.MEASURED, problem, dtype)
    return compare(
        "buffer", sides, limit._replace(floor=max(limit.floor, limit.widest * usual_floor(problem, dtype)))
    ).ok


def _listed(names: list[str]) -> str:
    others = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + others


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
