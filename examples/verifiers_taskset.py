"""Taskset for verifiers 0.4: kernels, paid by their certain speedup."""

import functools

import verifiers.v1 as vf

from warpgrade import Grader, InfraError, rewards

OPTIONS = {"require_own_kernel": 0.6, "timeout_s": 10.0}
ASK = "Write a CUDA kernel for {0}. Answer with one Python block that defines `class ModelNew(nn.Module)`."
PROBLEMS = ("relu", "softmax")


@functools.cache
def grader() -> Grader:
    """Return the grader of this process; its workers end with the process."""
    return Grader(**OPTIONS).start()


class KernelData(vf.TaskData):
    """Prompt and problem of a task."""

    problem: str


class KernelTask(vf.Task[KernelData]):
    """One problem."""

    @vf.reward
    async def speedup(self, trace) -> float:
        """Pay for the last reply. A failure of the machine is an error of the rollout, which has no reward then."""
        card = await grader().grade_async(self.data.problem, trace.last_reply)
        paid = rewards.speedup(card)
        if paid is None:
            raise InfraError(card.reason.message)
        return paid


class KernelTaskset(vf.Taskset[KernelTask, vf.TasksetConfig]):
    """A task for each problem."""

    def load(self):
        """Yield the tasks."""
        for name in PROBLEMS:
            yield KernelTask(KernelData(problem=name, prompt=ASK.format(name)), self.config.task)
