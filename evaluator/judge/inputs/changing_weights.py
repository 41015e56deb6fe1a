"""Weights that change from call to call, in place and in the same storage, as an optimiser changes them.

What follows from the weights alone (two layers folded into one, a packed copy) could else be computed once, in a first
call that is not quoted, and a stale copy could not show. A call's seed says which weights it has, so a replay repeats
them, and a runner learns of them with the inputs. Every call has weights of its own: where only some had, those of the
others could be worked into something smaller for all of them.

Each parameter is scaled, as a whole and element by element, by factors near 1, and zeros among other values stay. One
that is all zeros gets values. That is far more than any tolerance allows. Where a parameter has both signs, a tenth of
its elements change theirs: signs packed once would else be right for every call. Buffers stay, and so does what asks
for no gradient: no optimiser would change them.

A submission may know the values drawn, and find out from a few elements where a call's began. So each factor comes from
two places of them: what a table over all pairs of places holds (a norm, a sum) takes longer to make than to compute.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch

from evaluator.devices.memory import Region, strided
from evaluator.judge.inputs.derived_seeds import derived
from evaluator.judge.tensors.memory_overlap import Layouts, layout
from evaluator.judge.tensors.pytree import dtype_name
from evaluator.protocol.frames import TensorView
from evaluator.records import Weights, WeightsGraded, WeightsRule

_WHOLE = (0.15, 0.25)
"""A parameter as a whole is scaled by this much up or down: what averages over many elements does not average this."""
_EACH = 0.1
"""And its elements by up to this much, up or down: what is normalised afterwards does not take this out. It is less, so
that no element stays as it was."""
_FROM_ZERO = 0.1
_FLIPPED_ABOVE = 1.4
"""An element changes its sign where its two values add up to more than this, or to less than the negative: 9 %."""
_OF_EACH_SIGN = 1 / 16
"""Where fewer elements than this part have one of the signs, a reference may rely on the other."""
_PERIOD = (1 << 22) - 3
"""Values that are drawn once; each parameter begins at a place of its own among them. A prime: rows do not repeat."""
_SEED = 0x0DD


class Worn(NamedTuple):
    """The weights of the call with `seed`; None for those that were constructed."""

    seed: int | None


class Laid(NamedTuple):
    """The weights of one call: pairs of the judge's and the runner's, and those that the runner copies, by name."""

    direct: list[tuple[torch.Tensor, torch.Tensor]]
    staged: dict[str, torch.Tensor]


class Sites(NamedTuple):
    """Where a runner's parameters lie, by name: in memory that the judge writes to, or (None) in the runner's own.

    `why_not` says why they stay as they were constructed: because the submission's do not correspond to the reference's
    where they are `unmatched`.
    """

    shared: dict[str, torch.Tensor | None]
    why_not: str | None
    unmatched: bool = False

    @property
    def change(self) -> bool:
        """Say whether each call has weights of its own."""
        return self.why_not is None

    @property
    def copied(self) -> list[str]:
        """Name those that the runner copies, inside the clock."""
        return [name for name, shared in self.shared.items() if shared is None]

    def layouts(self, region: Region) -> Layouts:
        """Say where the judge writes weights, in bytes from the beginning of the `region`."""
        start = region.flat.data_ptr()
        found = {name: layout(shared) for name, shared in self.shared.items() if shared is not None}
        return {name: each._replace(start_bytes=each.start_bytes - start) for name, each in found.items()}

    def of(self, parameters: dict[str, torch.Tensor]) -> Laid:
        """Lay out a call's weights, the judge's `parameters` as they are now."""
        found = [(parameters[name], shared) for name, shared in self.shared.items() if shared is not None]
        return Laid(found, {name: parameters[name] for name in self.copied})


NO_SITES = Sites({}, "this runner's weights are not changed")


class ChangingWeights:
    """The weights of a model, as they were constructed and as calls have them."""

    def __init__(self, model: torch.nn.Module) -> None:
        """Remember the parameters of `model` as they are."""
        parameters = dict(model.named_parameters(remove_duplicate=False))
        self.names = tuple(name for name, parameter in parameters.items() if _may_change(parameter))
        """All names, those of tied parameters too."""
        self.exist = bool(self.names)
        self.why_not: str | None = None if self.exist else "the reference has no parameters that ask for gradients"
        own = [name for name, _ in model.named_parameters() if name in self.names]
        self._first = {name: parameters[name].detach().clone() for name in own}
        self._zeros = {name for name, value in self._first.items() if not bool(value.any())}
        self._mixed = {name for name, value in self._first.items() if _has_both_signs(value)}
        self._noise = torch.empty(0)
        if self._first:
            largest = max(self._first.values(), key=torch.Tensor.numel)
            # Drawn on the CPU: a replay on another machine repeats it.
            period = _PERIOD if largest.numel() > _LITTLE else _SHORT
            noise = torch.rand(period, generator=torch.Generator().manual_seed(_SEED))
            self._noise = noise.mul_(2).sub_(1).to(largest.device)

    def leave(self, why: str) -> None:
        """Leave them as they were constructed, in all calls."""
        self.names, self.why_not = (), why

    def keep_signs(self) -> bool:
        """Leave all signs as they were constructed, in all calls; say whether any would have changed."""
        had, self._mixed = bool(self._mixed), set()
        return had

    @torch.no_grad()
    def put(self, seed: int | None, models: Iterable[torch.nn.Module]) -> None:
        """Give `models` the weights of the call with `seed`, or those that were constructed.

        Those of higher precision get the same numbers, rounded as the first one's are.
        """
        known = [dict(model.named_parameters()) for model in models]
        for number, (name, first) in enumerate(self._first.items()):
            value = first if seed is None else self._changed(name, derived(seed, b"weight %d" % number))
            for parameters in known:
                parameters[name].copy_(value)

    def _changed(self, name: str, seed: int) -> torch.Tensor:
        """Scale a parameter by what `seed` says."""
        first = self._first[name]
        wide = torch.promote_types(first.dtype, torch.float32)
        span = _WHOLE[1] - _WHOLE[0]
        part = _WHOLE[0] + span * (seed >> 8 & 0xFFFF) / 0xFFFF
        whole = 1 + (part if seed & 1 else -part)
        noise = self._spread(first.numel(), seed >> 24).view(first.shape)
        other = self._spread(first.numel(), derived(seed, b"other place")).view(first.shape)
        both = noise * other.sign()
        if name in self._zeros:
            return (both * (_FROM_ZERO / 2) + math.copysign(_FROM_ZERO, whole - 1)).to(first.dtype)
        factor = both * _EACH + whole
        if name in self._mixed:
            factor = torch.where((noise + other).abs() > _FLIPPED_ABOVE, -factor, factor)
        return (first.to(wide) * factor).to(first.dtype)

    def _spread(self, count: int, start: int) -> torch.Tensor:
        """Give so many of the values that were drawn, from `start` on and around again."""
        period = self._noise.numel()
        start %= period
        pieces = [self._noise[start : start + count]]
        missing = count - pieces[0].numel()
        while missing > 0:
            pieces.append(self._noise[:missing])
            missing -= pieces[-1].numel()
        return torch.cat(pieces)


_NAMED = 3
_LITTLE, _SHORT = 1 << 16, (1 << 17) - 1
"""Small parameters need fewer values: a grade of a small problem draws them each time."""


def record(rule: WeightsRule, weights: ChangingWeights, sites: Sites) -> Weights:
    """Write down which weights the calls of a runner have."""
    if not weights.exist:
        return Weights(rule=rule, graded=WeightsGraded.NONE)
    graded = WeightsGraded.CHANGING if sites.change else WeightsGraded.FROZEN
    return Weights(
        rule=rule,
        graded=graded,
        reason=sites.why_not,
        changed=len(sites.shared),
        copied=len(sites.copied),
        unmatched=sites.unmatched,
    )


def _may_change(parameter: torch.Tensor) -> bool:
    is_number = parameter.is_floating_point() or parameter.is_complex()
    return parameter.requires_grad and is_number and parameter.layout is torch.strided and parameter.numel() > 0


def _has_both_signs(value: torch.Tensor) -> bool:
    """Say whether no reference can rely on the signs of `value`, for many of its elements have each of them."""
    if value.is_complex():
        return bool(torch.view_as_real(value).isfinite().all())
    least = value.numel() * _OF_EACH_SIGN
    return bool(value.isfinite().all()) and min(int((value > 0).sum()), int((value < 0).sum())) >= max(least, 1)


def sites_of(parameters: dict[str, torch.Tensor], told: dict[str, TensorView], region: Region) -> Sites:
    """Hold what a runner says of where its parameters lie against the memory that is shared.

    It may say what it likes: what is written elsewhere is missing where its own weights are.
    """
    missing = [name for name in parameters if name not in told]
    if missing:
        others = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        return Sites(
            {}, f"ModelNew has nothing that corresponds to {', '.join(missing[:_NAMED])}{others}", unmatched=True
        )
    shared: dict[str, torch.Tensor | None] = {}
    for name, parameter in parameters.items():
        found = _shared(parameter, told[name], region)
        if isinstance(found, str):
            return Sites({}, f"ModelNew's {name} {found}", unmatched=True)
        shared[name] = found
    return Sites(shared, None)


def _shared(parameter: torch.Tensor, view: TensorView, region: Region) -> torch.Tensor | str | None:
    """Look at a runner's parameter; None where it lies in memory of its own, or why it cannot be changed."""
    if view.shape != tuple(parameter.shape) or view.dtype != dtype_name(parameter.dtype):
        return "has another shape or dtype"
    if view.offset_bytes is None:
        return None
    if not _separate(view):
        return "has elements that share memory"
    try:
        return strided(region.flat, parameter.dtype, view.shape, view.strides, view.offset_bytes)
    except ValueError:
        return "does not lie in shared memory"


def _separate(view: TensorView) -> bool:
    """Say whether no two elements share memory, as far as strides show it: each dimension is beyond those below it."""
    reach = 0
    for step, size in sorted(zip(view.strides, view.shape, strict=False)):
        if size > 1:
            if step <= reach:
                return False
            reach += (size - 1) * step
    return True
