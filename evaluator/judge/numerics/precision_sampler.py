"""Samples of a runner's answers, kept to be asked whether they have fewer bits than the problem asks for.

A wrong answer is asked at once. Of the right ones that may be quoted one is drawn by lot, and asked when its stage is
over: nobody could know which call it would be. Of outputs with a few elements some calls are drawn, and asked together.
"""

import contextlib
import functools
import secrets
from collections.abc import Callable
from typing import NamedTuple

import torch
from msgspec.structs import replace

from evaluator.findings import Code, finding
from evaluator.judge.compare.tensor_comparison import Sides
from evaluator.judge.numerics.reduced_precision import (
    ENOUGH,
    ENOUGH_CALLS,
    Asked,
    Errors,
    Found,
    ReferenceCall,
    format_of,
    sampled,
)
from evaluator.judge.reference.reference import Reference
from evaluator.judge.tensors.call_arguments import Arguments
from evaluator.records import Check, Precision

_MOST_CALLS = 32
"""The more calls, the more surely those in which a rounding is large tell it from an answer's other errors."""


class Sample(NamedTuple):
    """A sample of the outputs that one block of a call has, by path, and whether float64 says what they should be."""

    block: int
    outputs: dict[str, Errors]
    in_float64: bool

    def only(self, *, large: bool) -> "Sample":
        """Keep the outputs with enough errors to be asked by themselves, or the others."""
        kept = {path: errors for path, errors in self.outputs.items() if (len(errors.exact) >= ENOUGH) == large}
        return self._replace(outputs=kept)

    def call(
        self,
        reference: Reference,
        blocks: list[Arguments],
        random_seed: int,
        gradients: list[torch.Tensor] | None,
    ) -> ReferenceCall:
        """Give the call that this is a sample of; `blocks` and what follows are what the reference was called with."""
        return ReferenceCall(reference, blocks[self.block], random_seed, gradients, self.in_float64)

    def lowered(self, call: ReferenceCall, path: object) -> Found | None:
        """Name the format whose rounding is in the errors of the output at `path`, where `call` has enough of them.

        The answer is wrong in any case, so where memory runs out there is no name for it.
        """
        outputs = {known: errors for known, errors in self.only(large=True).outputs.items() if known == path}
        with contextlib.suppress(MemoryError):
            return format_of([Asked(lambda: call, outputs)])
        return None


class Drawn(NamedTuple):
    """A right call: its seed, its record, its sample."""

    seed: int
    check: Check
    sample: Sample


class _Lots:
    """Keeps so many of the calls that it is shown: each is as likely to be kept as any other."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._shown = 0
        self.kept: list[Drawn] = []

    def show(self, drawn: Drawn) -> None:
        if not drawn.sample.outputs:
            return
        self._shown += 1
        if len(self.kept) < self._most:
            self.kept.append(drawn)
        elif (place := secrets.randbelow(self._shown)) < self._most:
            self.kept[place] = drawn


class PrecisionWatch:
    """Samples the answers of one runner. Where a problem does not ask for fp32 there is nothing to sample."""

    def __init__(self, precision: Precision) -> None:
        """Begin with no call."""
        self._is_fp32 = precision is Precision.FP32
        self.sample = Sample(0, {}, in_float64=False)
        self._one, self._many = _Lots(1), _Lots(_MOST_CALLS)
        self._can_tell = self._is_fp32

    @property
    def lacks_calls(self) -> bool:
        """Say whether more right calls would tell more of outputs with a few elements."""
        return self._can_tell and len(self._many.kept) < _MOST_CALLS

    @property
    def drawn(self) -> list[list[Drawn]]:
        """Give the calls that were drawn, those together that are asked together, in any order."""
        lots = [kept for kept, enough in ((self._one.kept, 1), (self._many.kept, ENOUGH_CALLS)) if len(kept) >= enough]
        return [secrets.SystemRandom().sample(kept, len(kept)) for kept in lots]

    def look_closely(self, again: Callable[[Drawn], ReferenceCall]) -> Check | None:
        """Ask the calls that were drawn, which `again` makes; give the record of one of them as failed, or None.

        A single call is made once, each of many whenever it is asked about. Raises MemoryError as `format_of` does,
        when all were asked.
        """
        untried: str | None = None
        for drawn in self.drawn:
            makes: list[Callable[[], ReferenceCall]] = [functools.partial(again, each) for each in drawn]
            if len(makes) == 1:
                makes = [functools.cache(makes[0])]
            asked = [Asked(make, each.sample.outputs) for make, each in zip(makes, drawn, strict=True)]
            try:
                found = format_of(asked)
            except MemoryError as error:
                untried = str(error)
                continue
            if found is not None:
                of_many = f" over {len(drawn)} calls" if len(drawn) > 1 else ""
                message = (
                    f"{found.path} is within the tolerance, but its errors are those of {found.format.value}{of_many}"
                )
                problem = finding(Code.LOWER_PRECISION, message, path=found.path)
                return replace(drawn[0].check, ok=False, finding=problem)
        if untried is not None:
            raise MemoryError(untried)
        return None

    def begin(self, blocks: int) -> None:
        """Turn to a call whose expected values come in so many blocks, and draw the one to be sampled."""
        self.sample = Sample(secrets.randbelow(blocks), {}, in_float64=False)

    def add(self, block: int, path: str, sides: Sides, *, in_float64: bool) -> None:
        """Sample an output of this call, or the rows of it that a block has."""
        if self._is_fp32 and block == self.sample.block and (errors := sampled(*sides)) is not None:
            self.sample = self.sample._replace(in_float64=in_float64, outputs={**self.sample.outputs, path: errors})

    def draw_lots(self, seed: int, check: Check) -> None:
        """Keep this right call's sample or those that are kept: each call is as likely as any other.

        Without float64 the plain reference's rounding would be in both of the errors that are held against each other.
        """
        if not self.sample.outputs:
            return  # It is the plain reference's own answer, and was compared no further.
        self._can_tell = self.sample.in_float64
        if self._can_tell:
            self._one.show(Drawn(seed, check, self.sample.only(large=True)))
            self._many.show(Drawn(seed, check, self.sample.only(large=False)))
