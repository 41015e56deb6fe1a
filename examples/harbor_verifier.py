"""Verifier for Harbor: grades the agent's file on the host, outside of the container that the agent controls.

PYTHONPATH=examples harbor run --path TASKS --agent AGENT --verifier harbor_verifier:KernelVerifier

`[metadata]` of each task.toml has `problem`, and `submission`, a path in the container.
"""

import functools
import shlex

from harbor.models.verifier.result import VerifierResult
from harbor.verifier.base import BaseVerifier

from warpgrade import Grader, InfraError, rewards

OPTIONS = {"require_own_kernel": 0.6, "timeout_s": 10.0}
MOST_BYTES = 1 << 20


@functools.cache
def grader() -> Grader:
    """Return the grader of this process; its workers end with the process."""
    return Grader(**OPTIONS).start()


class KernelVerifier(BaseVerifier):
    """Pays for the certain speedup. A failure of the machine is an error of the trial, which has no reward then."""

    async def verify(self) -> VerifierResult:
        """Grade the submission. A missing file is graded like an empty answer."""
        facts = self.task.config.metadata
        path = shlex.quote(facts.get("submission", "/app/answer.py"))
        # As text: a link that the agent wrote must not be followed on the host.
        read = await self.environment.exec(f"head -c {MOST_BYTES} {path}", timeout_sec=60)
        card = await grader().grade_async(facts["problem"], read.stdout if read.return_code == 0 else None)
        paid = rewards.speedup(card)
        if paid is None:
            raise InfraError(card.reason.message)
        self.trial_paths.verifier_dir.mkdir(parents=True, exist_ok=True)
        card.write(self.trial_paths.verifier_dir / "scorecard.json")
        return VerifierResult(rewards={"reward": paid, "correct": float(card.correct)})
