"""Weights that change from call to call, in place and in the same storage, as under an optimiser.

With constant weights, a submission could compute functions of the weights once, in a first call that is not quoted: two
layers folded into one, or a packed copy. A stale copy would remain unnoticed. A call's seed determines the weights: a
replay repeats the same weights, and a runner learns the weights together with the inputs. Every call has new weights.
If only some calls had new weights, a submission could precompute a smaller form for all other calls.

Each parameter is scaled, as a whole and element by element, by factors near 1; zeros among other values stay zero. A
parameter of only zeros receives nonzero values. The changes far exceed any tolerance. In a parameter with both signs, a
tenth of the elements change sign: signs packed once would else be correct for every call. Buffers stay constant, as do
parameters without gradients and in fp8: an optimiser changes none of these.

A submission may know the random values, and find a call's start position from a few elements. Each factor therefore
combines values at two positions. A table of norms or sums over all pairs of positions takes longer to build than the
computation itself.
"""

import functools
from collections.abc import Iterable
from typing import NamedTuple

import torch

from evaluator.devices.memory import Region, strided
from evaluator.judge.reference.derived_seeds import derived
from evaluator.judge.reference.weight_factors import ChangeKind, Group, changed, changed_group, draw, groups_of
from evaluator.judge.tensors.memory_overlap import Layouts, layout, near
from evaluator.judge.tensors.number_formats import format_of
from evaluator.protocol.frames import TensorView
from evaluator.protocol.pytree import dtype_name
from evaluator.records import Weights, WeightsGraded, WeightsRule

_OF_EACH_SIGN = 1 / 16
"""Minimum share of each sign in a parameter; below, a reference may rely on the other sign."""
_PERIOD = (1 << 22) - 3
"""Number of random values, drawn once; each parameter starts at its own position. A prime: rows do not repeat."""
_SEED = 0x0DD


class CallWeights(NamedTuple):
    """Weights of the call with `seed`; None for the constructed weights."""

    seed: int | None


class Laid(NamedTuple):
    """Weights of a call: pairs of the judge's and the runner's tensors, and weights to be copied by the runner."""

    direct: list[tuple[torch.Tensor, torch.Tensor]]
    staged: dict[str, torch.Tensor]


class Sites(NamedTuple):
    """Locations of a runner's parameters, by name: memory that the judge writes to, or None (the runner's own).

    `why_not` is the reason for constant weights. If `unmatched`, the reason is a submission without weights that
    correspond to the reference's. `moved` are weights that a call has laid out anew.
    """

    shared: dict[str, torch.Tensor | None]
    why_not: str | None
    unmatched: bool = False
    moved: set[str] | None = None

    @property
    def change(self) -> bool:
        """Whether each call has its own weights."""
        return self.why_not is None

    @property
    def copied(self) -> list[str]:
        """Names of the weights that the runner copies, inside the clock."""
        return [name for name, shared in self.shared.items() if shared is None]

    def note_moved(self, names: Iterable[str]) -> None:
        """Note weights that the runner copies to other places from now on; other names have no effect."""
        if self.moved is not None:
            self.moved.update(self.shared.keys() & set(names))

    def layouts(self, region: Region) -> Layouts:
        """Return the layouts of the weights that the judge writes, in bytes from the start of `region`."""
        start = region.flat.data_ptr()
        layouts = {name: layout(shared) for name, shared in self.shared.items() if shared is not None}
        return {name: absolute._replace(start_bytes=absolute.start_bytes - start) for name, absolute in layouts.items()}

    def of(self, parameters: dict[str, torch.Tensor]) -> Laid:
        """Return the weights of a call, from the current values of the judge's `parameters`."""
        pairs = [(parameters[name], shared) for name, shared in self.shared.items() if shared is not None]
        return Laid(pairs, {name: parameters[name] for name in self.copied})

    def staged(self, parameters: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return a copy of all weights for the runner to copy, in the runner's order of dimensions where that is known.

        A copy between two orders would take longer than the same copy in a runner of the reference.
        """
        copies: dict[str, torch.Tensor] = {}
        for name, shared in self.shared.items():
            # `empty_like` leaves gaps between elements out, so hostile strides take no more memory.
            copies[name] = torch.empty_like(parameters[name] if shared is None else shared).copy_(parameters[name])
        return copies


NO_SITES = Sites({}, "this runner's weights are not changed")


class ChangingWeights:
    """Weights of a model: the constructed values, and the values of each call."""

    def __init__(self, model: torch.nn.Module) -> None:
        """Store the current parameters of `model`."""
        parameters = dict(model.named_parameters(remove_duplicate=False))
        self.names = tuple(name for name, parameter in parameters.items() if _may_change(parameter))
        """All names, including the names of tied parameters; none if the weights stay constant."""
        self.trained = self.names
        """All names, also of a reference that supports no other weights."""
        self.exist = bool(self.names)
        self.why_not: str | None = None if self.exist else "the reference has no parameters that ask for gradients"
        distinct_names = [name for name, _ in model.named_parameters() if name in self.names]
        self._first = {name: parameters[name].detach().clone() for name in distinct_names}
        self._zeros = {name for name, value in self._first.items() if not bool(value.any())}
        self._mixed = {name for name, value in self._first.items() if _has_both_signs(value)}
        # Of two parameters with common elements, the later one in the model decides: groups have another order.
        self._near = near({name: layout(parameters[name]) for name in distinct_names})
        self._noise = torch.empty(0)
        if self._first:
            largest = max(self._first.values(), key=torch.Tensor.numel)
            # Drawn on the CPU for replays on other machines.
            period = _PERIOD if largest.numel() > _LITTLE else _SHORT
            noise = torch.rand(period, generator=torch.Generator().manual_seed(_SEED))
            self._noise = noise.mul_(2).sub_(1).to(largest.device)

    def leave(self, reason: str) -> None:
        """Keep the constructed weights in all calls."""
        self.names, self.why_not = (), reason

    def constructed(self, name: str) -> torch.Tensor | None:
        """Return the constructed values of a parameter that changes; None for a parameter that stays constant."""
        return self._first.get(name) if name in self.names else None

    def keep_signs(self) -> bool:
        """Keep all constructed signs in all calls, and return whether any sign would have changed."""
        had, self._mixed = bool(self._mixed), set()
        self.__dict__.pop("_groups", None)
        return had

    @torch.no_grad()
    def put(self, seed: int | None, models: Iterable[torch.nn.Module]) -> None:
        """Write the weights of the call with `seed`, or the constructed weights, into `models`.

        Models of higher precision receive the same numbers, rounded to the first model's precision.
        """
        if not self._first:
            return
        targets = [dict(model.named_parameters()) for model in models]
        if seed is None:
            _write(targets, list(self._first), list(self._first.values()))
            return
        changes = {name: self._change_of(name) for name in self._first}
        drawn = {
            name: draw(change, derived(seed, b"weight %d" % number))
            for number, (name, change) in enumerate(changes.items())
        }
        grouped: set[str] = set()
        for group in self._groups:
            _write(targets, group.names, changed_group(group, self._noise, [drawn[name] for name in group.names]))
            grouped.update(group.names)
        for name, first in self._first.items():
            if name not in grouped:
                _write(targets, [name], [changed(changes[name], first, self._noise, drawn[name])])

    @functools.cached_property
    def _groups(self) -> list[Group]:
        apart = {name: first for name, first in self._first.items() if name not in self._near}
        return groups_of(apart, {name: self._change_of(name) for name in apart}, self._noise.numel())

    def _change_of(self, name: str) -> ChangeKind:
        if name in self._zeros:
            return ChangeKind.FROM_ZERO
        return ChangeKind.WITH_SIGNS if name in self._mixed else ChangeKind.KEEPS_SIGNS


def _write(models: list[dict[str, torch.nn.Parameter]], names: list[str], values: list[torch.Tensor]) -> None:
    """Copy the values of the named parameters into each model."""
    for parameters in models:
        torch._foreach_copy_([parameters[name] for name in names], values)


_NAMED = 3
_LITTLE, _SHORT = 1 << 16, (1 << 17) - 1
"""Small parameters use fewer random values: each grade of a small problem draws the values anew."""


def record(rule: WeightsRule, weights: ChangingWeights, sites: Sites) -> Weights:
    """Return the card's record of the weights in a runner's calls."""
    if not weights.exist:
        return Weights(rule=rule, graded=WeightsGraded.NONE)
    graded = WeightsGraded.CHANGING if sites.change else WeightsGraded.FROZEN
    return Weights(
        rule=rule,
        graded=graded,
        reason=sites.why_not,
        changed=len(sites.shared),
        copied=len({*sites.copied, *(sites.moved or ())}),
        unmatched=sites.unmatched,
    )


def _may_change(parameter: torch.Tensor) -> bool:
    is_number = (parameter.is_floating_point() or parameter.is_complex()) and format_of(parameter.dtype) is None
    return parameter.requires_grad and is_number and parameter.layout is torch.strided and parameter.numel() > 0


def _has_both_signs(value: torch.Tensor) -> bool:
    """Return whether both signs are frequent in `value`: no reference can then rely on signs."""
    if value.is_complex():
        return bool(torch.view_as_real(value).isfinite().all())
    least = value.numel() * _OF_EACH_SIGN
    return bool(value.isfinite().all()) and min(int((value > 0).sum()), int((value < 0).sum())) >= max(least, 1)


def sites_of(parameters: dict[str, torch.Tensor], views: dict[str, TensorView], region: Region) -> Sites:
    """Return the locations of a runner's parameters, from the runner's own report checked against shared memory.

    A false report harms only the submission: values written elsewhere are missing in the submission's weights.
    """
    missing = [name for name in parameters if name not in views]
    if missing:
        others = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        return Sites(
            {}, f"ModelNew has nothing that corresponds to {', '.join(missing[:_NAMED])}{others}", unmatched=True
        )
    shared: dict[str, torch.Tensor | None] = {}
    for name, parameter in parameters.items():
        shared_parameter = _shared(parameter, views[name], region)
        if isinstance(shared_parameter, str):
            return Sites({}, f"ModelNew's {name} {shared_parameter}", unmatched=True)
        shared[name] = shared_parameter
    return Sites(shared, None, moved=set())


def _shared(parameter: torch.Tensor, view: TensorView, region: Region) -> torch.Tensor | str | None:
    """Return a runner's parameter in shared memory; None if in the runner's own, or the reason against changes."""
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
    """Return whether strides prove all elements separate: each stride exceeds the reach of smaller strides."""
    reach = 0
    for step, size in sorted(zip(view.strides, view.shape, strict=False)):
        if size > 1:
            if step <= reach:
                return False
            reach += (size - 1) * step
    return True
