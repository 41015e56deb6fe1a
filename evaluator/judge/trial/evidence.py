"""Proofs of a runner's outputs: whether a wrong answer would have failed."""

import math
from collections import Counter

from evaluator.judge.setup.wrong_answers import PROOF
from evaluator.records import TensorCheck

_ENOUGH_PROOFS = 2
"""Calls with power that prove an output: one may have been answered by chance."""


class Evidence:
    """Proofs of a runner's outputs over its checked calls.

    A call proves an output if surely wrong answers are far beyond the tolerance (`TensorCheck.power`).
    """

    def __init__(self, *, unquoted: bool) -> None:
        """Begin without calls. `unquoted`: no speedup is quoted, and the plain reference's bits are a proof too."""
        self.unquoted = unquoted
        self.powers: dict[str, float] = {}
        """The largest power by path."""
        self._proofs: Counter[str] = Counter()
        self._other_bits: set[str] = set()

    def note(self, check: TensorCheck, *, has_bits_of_reference: bool) -> None:
        """Note a right comparison. A missing power, of a problem too large to try, counts as a proof."""
        power = math.inf if check.power is None else check.power
        self.powers[check.path] = max(self.powers.get(check.path, 0.0), power)
        self._proofs[check.path] += power >= PROOF
        if not has_bits_of_reference:
            self._other_bits.add(check.path)

    def has_proofs(self, path: str) -> bool:
        """Return whether enough calls prove an output: the power of further calls cannot change the verdict."""
        return self._proofs[path] >= _ENOUGH_PROOFS

    @property
    def unproven(self) -> list[str]:
        """Paths of outputs for which a wrong answer would have passed all calls, or nearly."""
        return [path for path in self.powers if not self._is_proven(path)]

    @property
    def proves_any(self) -> bool:
        """Whether an output is proven right."""
        return any(map(self._is_proven, self.powers))

    def _is_proven(self, path: str) -> bool:
        return self.has_proofs(path) or path not in self._other_bits
