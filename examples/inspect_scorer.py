"""Scorer for inspect_ai. The target of each sample names the problem, and the input asks for the kernel.

inspect eval examples/inspect_scorer.py --model openai/gpt-5
"""

import functools

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import Score, Target, accuracy, scorer, stderr
from inspect_ai.solver import TaskState, generate

from warpgrade import Grader, rewards

OPTIONS = {"require_own_kernel": 0.6, "timeout_s": 10.0}
ASK = "Write a CUDA kernel for {0}. Answer with one Python block that defines `class ModelNew(nn.Module)`."


@functools.cache
def grader() -> Grader:
    """Return the grader of this process; its workers end with the process."""
    return Grader(**OPTIONS).start()


@scorer(metrics=[accuracy(), stderr()])
def correct_kernel():
    """Score 1 for a correct kernel; a failure of the machine leaves the sample without a score."""

    async def score(state: TaskState, target: Target) -> Score:
        card = await grader().grade_async(target.text, state.output.completion)
        value = rewards.correctness(card)
        if value is None:
            return Score.unscored(reason="scoring_failed", explanation=card.reason.message)
        return Score(
            value=value, explanation=card.feedback(), metadata={"status": card.status, "speedup": card.speedup}
        )

    return score


@task
def kernels():
    """Return a task with two problems."""
    samples = [Sample(input=ASK.format(name), target=name) for name in ("relu", "softmax")]
    return Task(dataset=samples, solver=generate(), scorer=correct_kernel())
