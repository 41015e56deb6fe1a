"""Mapping between a submission's tensors and the reference's parameters, and updates of their values."""

import contextlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from evaluator.runner.correspondence import Counterpart, correspondence, has_elements, is_equal_to
from evaluator.runner.submission_module import difference_in_weights, own_state

_NAMED = 5
"""Number of tensors named in a difference."""


class Counterparts(NamedTuple):
    """A submission's tensors by the reference's names, after the copy of the reference's values.

    `difference` names the weights that were not copied, or says why no weight was copied; None after a copy of all
    weights. `assumed` are the pairs without proof, with values set by the judge: own names by the reference's names.
    """

    difference: str | None
    pairs: dict[str, Counterpart]
    assumed: dict[str, str]


def take_over_state(
    model: Any,
    state: Mapping[str, torch.Tensor],
    parameters: Collection[str],
    changing: Collection[str],
    *,
    seeded: bool,
) -> Counterparts:
    """Copy the reference's `state` into `model`, by equal names or else by correspondence.

    Without a counterpart of each of `parameters`, nothing is copied by correspondence. A constructor may fold a
    constant into a parameter, and a copy undoes this: under an equal name, another value before the copy makes the
    pair an assumption. With `seeded`, nothing is copied by an assumption or by correspondence.
    """
    difference = difference_in_weights(model, state)
    if difference is None:
        return _taken_over_by_name(model, state, parameters, seeded=seeded)
    pairs = correspondence(model, state)
    if seeded or any(name not in pairs for name in parameters):
        return Counterparts(difference, pairs, {})
    unlike = {name for name, pair in pairs.items() if not is_equal_to(pair.view, state[name])}
    with torch.no_grad():
        for name in unlike:
            pairs[name].view.copy_(state[name])
    touched = unlike.union(changing)
    assumed = {name: pair.own_name for name, pair in pairs.items() if name in touched and not pair.is_proven}
    return Counterparts(None, pairs, assumed)


def _taken_over_by_name(
    model: Any, state: Mapping[str, torch.Tensor], parameters: Collection[str], *, seeded: bool
) -> Counterparts:
    own_tensors = own_state(model)
    unlike = {name: name for name in parameters if name in state and not _is_like(own_tensors[name], state[name])}
    pairs = {name: Counterpart(name, own_tensors[name], is_proven=name not in unlike) for name in state}
    unchanged = unlike if seeded else {}
    with torch.no_grad():
        for name, value in state.items():
            if name not in unchanged:
                own_tensors[name].copy_(value)
    if unchanged:
        return Counterparts(f"ModelNew's own values in {', '.join([*unchanged][:_NAMED])}", pairs, {})
    return Counterparts(None, pairs, unlike)


def _is_like(tensor: torch.Tensor, expected: torch.Tensor) -> bool:
    """Return whether a tensor has the wanted values on the same device."""
    return tensor.device == expected.device and is_equal_to(tensor, expected)


class ChangingParameters:
    """Parameters of a submission whose values change from call to call, by the reference's names.

    A forward may lay a parameter out anew: `self.to(memory_format=torch.channels_last)`, or `weight.data = …`. Like an
    optimiser's step, each call then changes the values at both places: the submission may still read the first.
    """

    def __init__(self, model: Any = None, pairs: Mapping[str, Counterpart] | None = None) -> None:
        """Start with the places of `pairs`."""
        initial_pairs = pairs or {}
        self.views = {name: pair.view for name, pair in initial_pairs.items()}
        self._model = model
        self._moved: dict[str, torch.Tensor] = {}
        # Only parameters in the reference's shape and order of dimensions are followed.
        self._paths = {
            name: path
            for name, pair in initial_pairs.items()
            if _lies_as(_at(model, path := pair.own_name.split(".")), pair.view)
        }

    def look(self) -> list[str]:
        """Find the parameters outside of their first places, and return the names."""
        self._moved = {}
        for name, path in self._paths.items():
            tensor, view = _at(self._model, path), self.views[name]
            if tensor is None or _lies_as(tensor, view):
                continue
            if (tensor.shape, tensor.dtype, tensor.device) == (view.shape, view.dtype, view.device):
                self._moved[name] = tensor.detach()
        return list(self._moved)

    @torch.no_grad()
    def follow(self, values: Mapping[str, torch.Tensor]) -> None:
        """Copy `values`, and those of moved parameters to the places of the last look.

        Increments each tensor's version counter like an optimizer step: PyTorch does not see the judge's writes to
        shared memory, and caches of packed weights depend on version counters.
        """
        if not self.views:
            return
        for name, value in values.items():
            self.views[name].copy_(value)
        for name, tensor in self._moved.items():
            tensor.copy_(self.views[name])
        counted = [tensor for tensor in self.views.values() if not tensor.is_inference()]
        versions = [tensor._version + 1 for tensor in counted]  # noqa: SLF001 - documented nowhere else, and stable
        torch._C._autograd._unsafe_set_version_counter(tuple(counted), tuple(versions))  # noqa: SLF001 - what FSDP uses


def _at(model: Any, path: Sequence[str]) -> torch.Tensor | None:
    """Return the tensor with elements at a dotted name of `model`; None without one."""
    attribute = model
    with contextlib.suppress(Exception):  # A submission's own properties may fail.
        for name in path:
            attribute = getattr(attribute, name)
        return attribute if has_elements(attribute) and attribute.layout is torch.strided else None
    return None


def _lies_as(tensor: torch.Tensor | None, view: torch.Tensor) -> bool:
    if tensor is None or tensor.shape != view.shape:
        return False
    return tensor.data_ptr() == view.data_ptr() and tensor.stride() == view.stride()
