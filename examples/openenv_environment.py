"""Environment for OpenEnv: each step grades an attempt; the observation is the feedback for the next one.

PYTHONPATH=examples uvicorn openenv_environment:app --port 8000
"""

import functools
import uuid

from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State

from warpgrade import Grader, rewards

OPTIONS = {"require_own_kernel": 0.6, "timeout_s": 10.0}
ASK = "Write a CUDA kernel for {0}. Answer with one Python block that defines `class ModelNew(nn.Module)`."
PROBLEMS = ("relu", "softmax")
ATTEMPTS = 4


@functools.cache
def grader() -> Grader:
    """Return the grader of this process; its workers end with the process."""
    return Grader(**OPTIONS).start()


class KernelAction(Action):
    """An answer with a kernel."""

    answer: str


class KernelObservation(Observation):
    """Task or feedback. The reward is None after a failure of the machine, which also takes no attempt."""

    text: str
    problem: str
    status: str | None = None


class KernelEnvironment(Environment[KernelAction, KernelObservation, State]):
    """An episode is one problem with up to four attempts. It ends early with a correct kernel."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        """Choose the first problem."""
        super().__init__()
        self._problem, self._state = PROBLEMS[0], State()

    def reset(self, seed=None, episode_id=None, problem=None, **others) -> KernelObservation:
        """Begin an episode on `problem`, or on the one that the seed selects."""
        if problem is not None and problem not in PROBLEMS:
            raise ValueError(f"no problem {problem!r} here; known: {', '.join(PROBLEMS)}")
        self._problem = problem or PROBLEMS[(seed or 0) % len(PROBLEMS)]
        self._state = State(episode_id=episode_id or str(uuid.uuid4()))
        return KernelObservation(text=ASK.format(self._problem), problem=self._problem)

    async def step_async(self, action, timeout_s=None, **others) -> KernelObservation:
        """Grade an answer."""
        card = await grader().grade_async(self._problem, action.answer)
        paid = rewards.speedup(card)
        self._state.step_count += paid is not None
        return KernelObservation(
            text=card.feedback(),
            problem=self._problem,
            status=card.status.value,
            reward=paid,
            done=card.correct or self._state.step_count >= ATTEMPTS,
        )

    def step(self, action, timeout_s=None, **others) -> KernelObservation:
        """Raise: the server awaits `step_async`."""
        raise NotImplementedError("await step_async")

    @property
    def state(self) -> State:
        """Episode and number of graded attempts."""
        return self._state


app = create_app(KernelEnvironment, KernelAction, KernelObservation, env_name="warpgrade", max_concurrent_envs=64)
