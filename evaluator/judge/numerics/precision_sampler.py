"""Samples of a runner's outputs, kept for a later test for reduced precision.

A wrong output is tested at once. Among the correct calls that may be quoted, a single random call is tested after the
stage. No submission can predict the choice. For outputs of few elements, several random calls are tested together.
Slices that depend on cancelling rows are kept of several calls, and tested by the size of their errors.
"""

import contextlib
import functools
import secrets
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from evaluator.findings import Code, finding
from evaluator.findings.comparing import IN_FP32_OR_A_STEP
from evaluator.judge.compare.tensor_comparison import Sides
from evaluator.judge.compare.tolerance import HALF
from evaluator.judge.numerics.arithmetic_modes import Format
from evaluator.judge.numerics.error_size import LEAST_ERRORS, fault_in_half, outsized
from evaluator.judge.numerics.reduced_precision import (
    ENOUGH,
    ENOUGH_CALLS,
    FormatMatch,
    coarser_than,
    format_of,
    sampled,
    sampled_slices,
)
from evaluator.judge.numerics.rounded_reference import CallErrors, Errors, ReferenceCall
from evaluator.judge.reference.call_plan import CallPlan
from evaluator.judge.reference.cancelling_rows import Slices
from evaluator.records import Check, Finding, Precision

_MOST_CALLS = 32
"""Limit of calls tested together. More calls with a large rounding separate the rounding better from other errors."""


class ErrorSample(NamedTuple):
    """Sampled outputs of a block of a call, by path, and whether the expected values are in float64.

    `slices` are the errors in slices that depend on cancelling rows. `formats` have fewer bits than the problem's
    arithmetic.
    """

    block: int
    outputs: dict[str, Errors]
    in_float64: bool
    slices: dict[str, Errors] = {}
    formats: tuple[Format, ...] = tuple(Format)

    def only(self, *, large: bool) -> "ErrorSample":
        """Return the sample with only the outputs of at least `ENOUGH` errors (`large`), or only the rest."""
        kept = {path: errors for path, errors in self.outputs.items() if (len(errors.exact) >= ENOUGH) == large}
        return self._replace(outputs=kept, slices={})

    def only_slices(self) -> "ErrorSample":
        """Return the sample with the errors of slices alone."""
        return self._replace(outputs=self.slices, slices={})

    def call(self, plan: CallPlan) -> ReferenceCall:
        """Return the sampled block of a call of the reference."""
        return ReferenceCall(plan.reference, plan.blocks[self.block], plan.random_seed, plan.gradients, self.in_float64)

    def lowered(self, call: ReferenceCall, path: object) -> FormatMatch | None:
        """Return the format whose rounding is in the errors of the output at `path`; None without a match.

        Fewer than `ENOUGH` errors also return None, as does exhausted memory: the output is wrong in any case.
        """
        outputs = {key: errors for key, errors in self.only(large=True).outputs.items() if key == path}
        with contextlib.suppress(MemoryError):
            return format_of([CallErrors(lambda: call, outputs)], self.formats)
        return None


class Drawn(NamedTuple):
    """A correct call: seed, record, sample."""

    seed: int
    check: Check
    sample: ErrorSample


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
        elif (index := secrets.randbelow(self._shown)) < self._most:
            self.kept[index] = drawn

    @property
    def errors(self) -> Counter[str]:
        """Number of errors of each output, in all kept calls."""
        count = Counter[str]()
        for drawn in self.kept:
            count.update({path: errors.exact.numel() for path, errors in drawn.sample.outputs.items()})
        return count


class PrecisionWatch:
    """Samples of a runner's outputs: of fp32 for a later test, of half precision for a test in the call itself."""

    def __init__(self, precision: Precision) -> None:
        """Start without calls."""
        self._formats = coarser_than(precision)
        self.sample = ErrorSample(0, {}, in_float64=False, formats=self._formats)
        self._one, self._many = _Lots(1), _Lots(_MOST_CALLS)
        self._with_slices = {concentrated: _Lots(_MOST_CALLS) for concentrated in (False, True)}
        """Calls by the kind of their secret rows: sums that cancel have larger errors than sums of a few terms."""
        self._slices: dict[str, list[Slices]] = {}
        self._can_tell = bool(self._formats)
        self.fault_in_half: Finding | None = None
        """Why the errors of the current call are none of honest half precision."""

    @property
    def lacks_calls(self) -> bool:
        """Whether more correct calls would improve the test of outputs with few elements."""
        return self._can_tell and len(self._many.kept) < _MOST_CALLS

    @property
    def lacks_errors(self) -> bool:
        """Whether a test over several calls has some errors, and too few: of secret rows, or of small outputs."""
        of_rows = (count for lots in self._with_slices.values() for count in lots.errors.values())
        has_few = any(count < LEAST_ERRORS for count in of_rows) or 0 < len(self._many.kept) < ENOUGH_CALLS
        return self._can_tell and has_few

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
        looks = [functools.partial(self._correlated, drawn, again) for drawn in self.drawn]
        looks += [functools.partial(self._outsized, lots.kept, again) for lots in self._with_slices.values()]
        for look in looks:
            try:
                check = look()
            except MemoryError as error:
                untried = str(error)
                continue
            if check is not None:
                return check
        if untried is not None:
            raise MemoryError(untried)
        return None

    def _correlated(self, drawn: list[Drawn], again: Callable[[Drawn], ReferenceCall]) -> Check | None:
        """Look for a format whose rounding is in the errors of calls."""
        match = format_of(_errors_of_calls(drawn, again), self._formats)
        if match is None:
            return None
        of_many = f" over {len(drawn)} calls" if len(drawn) > 1 else ""
        name = match.name(drawn[0].sample.outputs.get(match.path))
        message = f"{match.path} is within the tolerance, but its errors are those of {name}{of_many}"
        return _failed_check(drawn[0], message, match.path)

    def _outsized(self, calls: list[Drawn], again: Callable[[Drawn], ReferenceCall]) -> Check | None:
        """Look for errors too large for fp32 in the secret rows of calls."""
        shuffled = secrets.SystemRandom().sample(calls, len(calls))
        match = outsized(_errors_of_calls(shuffled, again), self._formats[0]) if shuffled else None
        if match is None:
            return None
        message = (
            f"{match.path} is within the tolerance, but its relative error is {match.error:.1e} in secret rows: the "
            f"reference has {match.fp32:.1e} in any order of summation in fp32, and {match.coarser:.1e} "
            f"with operands in {match.format.value}"
        )
        return _failed_check(shuffled[0], message, match.path, IN_FP32_OR_A_STEP)

    def begin(self, blocks: int, slices: dict[str, list[Slices]] | None = None) -> None:
        """Start a call with expected values in `blocks` blocks, and draw the block for the sample.

        `slices` of the outputs depend on cancelling rows.
        """
        self._slices = slices or {}
        self.fault_in_half = None
        self.sample = ErrorSample(secrets.randbelow(blocks), {}, in_float64=False, formats=self._formats)

    def add(self, block: int, path: str, sides: Sides, *, in_float64: bool, start: int = 0) -> None:
        """Sample an output of the current call, or its rows from `start` on, if `block` is the drawn block."""
        if block != self.sample.block:
            return
        if (errors := sampled(*sides, HALF)) is not None and in_float64 and self.fault_in_half is None:
            reason = fault_in_half(errors, sides.honest.dtype)
            message = f"{path} is within the tolerance, but {reason}"
            self.fault_in_half = None if reason is None else finding(Code.LOWER_PRECISION, message, path=path)
        if not self._formats or (errors := sampled(*sides)) is None:
            return
        sample = self.sample._replace(in_float64=in_float64, outputs={**self.sample.outputs, path: errors})
        slices = [_within_block(row_slices, start) for row_slices in self._slices.get(path, [])]
        if (cancelled := sampled_slices(slices, *sides)) is not None:
            sample = sample._replace(slices={**sample.slices, path: cancelled})
        self.sample = sample

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
            concentrated = any(row_slices.concentrated for slices in self._slices.values() for row_slices in slices)
            self._with_slices[concentrated].show(Drawn(seed, check, self.sample.only_slices()))


def _failed_check(drawn: Drawn, message: str, path: str, next_step: str | None = None) -> Check:
    failure = finding(Code.LOWER_PRECISION, message, next_step=next_step, path=path)
    return replace(drawn.check, ok=False, finding=failure)


def _errors_of_calls(drawn: list[Drawn], again: Callable[[Drawn], ReferenceCall]) -> list[CallErrors]:
    """Return the errors of the calls. A single call is made anew once, and each of many calls at every use."""
    makes: list[Callable[[], ReferenceCall]] = [functools.partial(again, call) for call in drawn]
    if len(makes) == 1:
        makes = [functools.cache(makes[0])]
    return [CallErrors(make, call.sample.outputs) for make, call in zip(makes, drawn, strict=True)]


def _within_block(slices: Slices, start: int) -> Slices:
    """Return the slices with indices counted from row `start`, where a block begins along dimension 0."""
    return slices if slices.dim else slices._replace(indices=[index - start for index in slices.indices])
