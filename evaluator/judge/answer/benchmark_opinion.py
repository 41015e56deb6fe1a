"""Second opinion on an answer, by the benchmark's own rule: changes no verdict, and comes from the judge alone."""

import contextlib
from collections import defaultdict

import torch

from evaluator.errors import ProblemError
from evaluator.judge.answer.answer_judge import Judged
from evaluator.judge.compare.benchmark_rules import accepted, all_agree, compared
from evaluator.judge.reference.call_plan import CallPlan
from evaluator.records import Profile


def benchmark_accepts(plan: CallPlan, judged: Judged) -> bool | None:
    """Return whether the benchmark's rule accepts the judge's snapshots of an answer; None without an opinion.

    A benchmark draws the problem's own values alone: other distributions have no opinion, and secret rows do not count.
    An answer of another structure, shape or dtype has no snapshot: every benchmark refuses the answer. A failure of the
    comparison, as by a lack of memory, leaves no opinion.
    """
    if plan.profile is not Profile.AS_GIVEN:
        return None
    if not judged.snapshots:
        return judged.problem is None
    rule = plan.reference.matched_ratio
    starts = {view.path: 0 for view in judged.snapshots}
    parts: defaultdict[str, list[torch.Tensor]] = defaultdict(list)
    with contextlib.suppress(ProblemError, RuntimeError, MemoryError):
        for result, _ in plan.honest():
            values = plan.reference.values(result)
            for path, _, tensor, _ in judged.snapshots:
                honest, start = values[path], starts[path]
                rows = honest.shape[0] if honest.dim() else 1
                actual = tensor if honest.shape == tensor.shape else tensor[start : start + rows]
                if actual.shape != honest.shape:
                    return False
                secret = [each for each in plan.slices.get(path, []) if each.fit(tensor.shape)]
                apart = [(each.dim, index - (0 if each.dim else start)) for each in secret for index in each.indices]
                parts[path].append(
                    all_agree(actual, honest, apart) if rule is None else compared(actual, honest, apart, rule)
                )
                starts[path] += rows
        if rule is None:
            return all(bool(flag) for flags in parts.values() for flag in flags)
        return all(accepted(each, rule) for each in parts.values())
    return None
