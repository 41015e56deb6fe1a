"""Samples of a runner's outputs, kept for a later test for reduced precision.

A wrong output is tested at once. Among the correct calls that may be quoted, a single random call is tested after the
stage. No submission can predict the choice. For outputs of few elements, several random calls are tested together.
"""

import contextlib
import functools
import secrets
from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from evaluator.findings import Code, finding
from evaluator.judge.compare.tensor_comparison import Sides
from evaluator.judge.numerics.arithmetic_modes import Format
from evaluator.judge.numerics.reduced_precision import (
    ENOUGH,
    ENOUGH_CALLS,
    Asked,
    Errors,
    Found,
    ReferenceCall,
    coarser_than,
    format_of,
    sampled,
)
from evaluator.judge.reference.call_plan import CallPlan
from evaluator.records import Check, Precision

_MOST_CALLS = 32
"""Limit of calls tested together. More calls with a large rounding separate the rounding better from other errors."""


class Sample(NamedTuple):
    """Sampled outputs of a block of a call, by path, and whether the expected values are in float64.

    `formats` have fewer bits than the problem's arithmetic.
    """

    block: int
    outputs: dict[str, Errors]
    in_float64: bool
    formats: tuple[Format, ...] = tuple(Format)

    def only(self, *, large: bool) -> "Sample":
        """Return the sample with only the outputs of at least `ENOUGH` errors (`large`), or only the rest."""
        kept = {path: errors for path, errors in self.outputs.items() if (len(errors.exact) >= ENOUGH) == large}
        return self._replace(outputs=kept)

    def call(self, plan: CallPlan) -> ReferenceCall:
        """Return the sampled block of a call of the reference."""
        return ReferenceCall(plan.reference, plan.blocks[self.block], plan.random_seed, plan.gradients, self.in_float64)

    def lowered(self, call: ReferenceCall, path: object) -> Found | None:
        """Return the format whose rounding is in the errors of the output at `path`; None without a match.

        Fewer than `ENOUGH` errors also return None, as does exhausted memory: the output is wrong in any case.
        """
        outputs = {known: errors for known, errors in self.only(large=True).outputs.items() if known == path}
        with contextlib.suppress(MemoryError):
            return format_of([Asked(lambda: call, outputs)], self.formats)
        return None


class Drawn(NamedTuple):
    """A correct call: seed, record, sample."""

    seed: int
    check: Check
    sample: Sample


class _Lots:
    """Reservoir sample of calls: every call has the same probability of being kept."""

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
    """Samples of a runner's outputs, for problems in fp32 or TF32: half precision has no coarser format."""

    def __init__(self, precision: Precision) -> None:
        """Start without calls."""
        self._formats = coarser_than(precision)
        self.sample = Sample(0, {}, in_float64=False, formats=self._formats)
        self._one, self._many = _Lots(1), _Lots(_MOST_CALLS)
        self._can_tell = bool(self._formats)

    @property
    def lacks_calls(self) -> bool:
        """Whether more correct calls would improve the test of outputs with few elements."""
        return self._can_tell and len(self._many.kept) < _MOST_CALLS

    @property
    def drawn(self) -> list[list[Drawn]]:
        """Groups of kept calls, in random order. The calls of a group are tested together."""
        lots = [kept for kept, enough in ((self._one.kept, 1), (self._many.kept, ENOUGH_CALLS)) if len(kept) >= enough]
        return [secrets.SystemRandom().sample(kept, len(kept)) for kept in lots]

    def look_closely(self, again: Callable[[Drawn], ReferenceCall]) -> Check | None:
        """Return the record of a kept call, marked as failed, if reduced precision is found; else None.

        `again` makes a reference call: once for a single kept call, and at each use for a group of many.

        Raises:
            MemoryError: no group has a finding, and a format could not be tried (see `format_of`).
        """
        untried: str | None = None
        for drawn in self.drawn:
            makes: list[Callable[[], ReferenceCall]] = [functools.partial(again, each) for each in drawn]
            if len(makes) == 1:
                makes = [functools.cache(makes[0])]
            asked = [Asked(make, each.sample.outputs) for make, each in zip(makes, drawn, strict=True)]
            try:
                found = format_of(asked, self._formats)
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
        """Start a call with expected values in `blocks` blocks, and draw the block for the sample."""
        self.sample = Sample(secrets.randbelow(blocks), {}, in_float64=False, formats=self._formats)

    def add(self, block: int, path: str, sides: Sides, *, in_float64: bool) -> None:
        """Sample an output of the current call, or the rows of a block, if `block` is the drawn block."""
        if self._formats and block == self.sample.block and (errors := sampled(*sides)) is not None:
            self.sample = self.sample._replace(in_float64=in_float64, outputs={**self.sample.outputs, path: errors})

    def draw_lots(self, seed: int, check: Check) -> None:
        """Offer a correct call to the reservoirs; every call has the same probability of being kept.

        Without float64, the plain reference's rounding would be in both compared errors, and the call is not kept.
        """
        if not self.sample.outputs:
            return  # The outputs equal the plain reference's, and were not compared further.
        self._can_tell = self.sample.in_float64
        if self._can_tell:
            self._one.show(Drawn(seed, check, self.sample.only(large=True)))
            self._many.show(Drawn(seed, check, self.sample.only(large=False)))
