"""The benchmark's own rule for an answer: a second opinion, or the verdict of a grade with --tolerance benchmark.

The judge alone computes the opinion, from the plain reference. A benchmark draws the problem's own values alone, and
secret rows do not count.
"""

import contextlib
from collections import defaultdict

import torch

from evaluator.errors import ProblemError
from evaluator.findings import Code, finding
from evaluator.judge.compare.benchmark_rules import all_agree, compared, fault
from evaluator.judge.reference.author_check import OUT_OF_MEMORY, refusal_by, with_answers
from evaluator.judge.reference.call_plan import CallPlan
from evaluator.judge.tensors.output_views import OutputViews
from evaluator.records import Finding, Profile


def benchmark_accepts(plan: CallPlan, snapshots: list[OutputViews], *, is_right: bool) -> bool | None:
    """Return whether the benchmark's rule accepts the judge's snapshots of an answer; None without an opinion.

    An answer of another structure, shape or dtype has no snapshot: every benchmark refuses the answer. Nor has an
    answer equal to the reference's, which `is_right`. A failure of the comparison, as by a lack of memory, leaves no
    opinion.
    """
    if plan.profile is not Profile.AS_GIVEN:
        return None
    if not snapshots:
        return is_right
    with contextlib.suppress(ProblemError, RuntimeError, MemoryError):
        return refusal_of_benchmark(plan, snapshots) is None
    return None


def refusal_of_benchmark(plan: CallPlan, snapshots: list[OutputViews]) -> Finding | None:
    """Return why the benchmark's rule refuses an answer; None if accepted.

    Raises:
        ProblemError: the rule refuses the reference's own answer, and means nothing.
        MemoryError: there is not enough memory for the rule.
    """
    if plan.reference.benchmark_check is not None:
        return _refusal_by_check(plan, snapshots)
    rule, title = plan.reference.matched_ratio, plan.reference.problem.benchmark.label
    starts = {view.path: 0 for view in snapshots}
    parts: defaultdict[str, list[torch.Tensor]] = defaultdict(list)
    for result, _ in plan.honest():
        values = plan.reference.values(result)
        for path, _, tensor, _ in snapshots:
            honest, start = values[path], starts[path]
            rows = honest.shape[0] if honest.dim() else 1
            actual = tensor if honest.shape == tensor.shape else tensor[start : start + rows]
            if actual.shape != honest.shape:
                return finding(Code.WRONG_VALUES, f"{path}: another shape than the reference's", path=path)
            secret = [each for each in plan.slices.get(path, []) if each.fit(tensor.shape)]
            apart = [(each.dim, index - (0 if each.dim else start)) for each in secret for index in each.indices]
            compare = all_agree(actual, honest, apart) if rule is None else compared(actual, honest, apart, rule)
            parts[path].append(compare)
            starts[path] += rows
    for path, found in parts.items():
        why = fault(found, rule) if rule is not None else None if all(map(bool, found)) else "not all values are near"
        if why is not None:
            return finding(Code.WRONG_VALUES, f"{path}: {why} ({title}'s rule)", path=path)
    return None


def _refusal_by_check(plan: CallPlan, snapshots: list[OutputViews]) -> Finding | None:
    """Return the refusal of an answer by the problem's function."""
    reference, check = plan.reference, plan.reference.benchmark_check
    if check is None:
        raise TypeError("this problem has no function that checks answers")
    own = reference.honest(plan.inputs, plan.random_seed, None).result.outputs
    message = refusal_by(check, plan.inputs, with_answers(own, {view.path: view.tensor for view in snapshots}))
    if message is None:
        return None
    own_message = refusal_by(check, plan.inputs, own)
    if OUT_OF_MEMORY in (message, own_message):  # A submission may hold the memory: a lack of it excuses no answer.
        raise MemoryError(OUT_OF_MEMORY)
    if own_message is not None:
        raise ProblemError(f"{reference.problem.name}: check refuses the answer of Model itself: {own_message}")
    return finding(Code.CHECK_REFUSES, message)
