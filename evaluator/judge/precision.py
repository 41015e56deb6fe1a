"""Samples of a runner's answers, kept to be asked whether they have fewer bits than the problem asks for.

A wrong answer is asked at once. Of the right ones that may be quoted one is drawn by lot, and asked when its stage is
over: nothing is computed between two calls, and nobody could know which call it would be.
"""

import secrets
from typing import NamedTuple

import torch

from evaluator.judge.compare import Sides
from evaluator.judge.lowered import Call, Errors, Found, format_of, sampled
from evaluator.judge.reference import Arguments, Reference
from evaluator.records import Check, Precision


class Sample(NamedTuple):
    """A sample of the outputs that one block of a call has, by path, and whether float64 says what they should be."""

    block: int
    outputs: dict[str, Errors]
    in_float64: bool

    def lowered(
        self,
        reference: Reference,
        blocks: list[Arguments],
        random_seed: int,
        gradients: list[torch.Tensor] | None,
        *,
        only: object = None,
    ) -> Found | None:
        """Name the format whose rounding is in an output's errors, the one at the path `only` if that is given.

        `blocks` and what follows them are what the reference was called with.
        """
        outputs = {path: errors for path, errors in self.outputs.items() if only in (None, path)}
        return format_of(Call(reference, blocks[self.block], random_seed, gradients, self.in_float64), outputs)


class Drawn(NamedTuple):
    """A right call: its seed, its record, its sample."""

    seed: int
    check: Check
    sample: Sample


class PrecisionWatch:
    """Samples the answers of one runner. Where a problem does not ask for fp32 there is nothing to sample."""

    def __init__(self, precision: Precision) -> None:
        """Begin with no call."""
        self._is_fp32 = precision is Precision.FP32
        self.sample = Sample(0, {}, in_float64=False)
        self._right = 0
        self.drawn: Drawn | None = None

    def begin(self, blocks: int) -> None:
        """Turn to a call whose expected values come in so many blocks, and draw the one to be sampled."""
        self.sample = Sample(secrets.randbelow(blocks), {}, in_float64=False)

    def add(self, block: int, path: str, sides: Sides, *, in_float64: bool) -> None:
        """Sample an output of this call, or the rows of it that a block has."""
        if self._is_fp32 and block == self.sample.block and (errors := sampled(*sides)) is not None:
            self.sample = self.sample._replace(in_float64=in_float64, outputs={**self.sample.outputs, path: errors})

    def draw_lots(self, seed: int, check: Check) -> None:
        """Keep this right call's sample or the one that is kept: each call is as likely as any other.

        Without float64 the plain reference's rounding would be in both of the errors that are held against each other.
        """
        if self.sample.outputs and self.sample.in_float64:
            self._right += 1
            if secrets.randbelow(self._right) == 0:
                self.drawn = Drawn(seed, check, self.sample)
