"""Cancelling rows: a few secret rows with random signs in each call with the problem's own input values.

In a sum of positive terms, the roundings of the terms average out: a product in TF32 is then as close to the exact
value as a product in fp32. A sum of terms of both signs is small beside its terms, and shows each rounding in full.

A row is a slice of an input along one dimension, on which one slice of the output depends and no other: a row of a
matrix, an item of a batch, a channel. `setup.row_sites` finds these dimensions by trial.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from evaluator.judge.formats.elements import format_of
from evaluator.judge.tensors.call_arguments import Arguments
from evaluator.protocol.model_call import tensors_of
from evaluator.records import RowSite

_ROWS = 8
_ONE_IN = 8
"""At most one row of eight cancels: the time of the call is quoted for the problem's own values."""
_LEAST_ELEMENTS = 4
"""A shorter row has no mean to speak of."""
_MOST_ELEMENTS = 1 << 22
"""Limit of the overwritten elements of a tensor. Temporaries stay small beside a large input."""


class Rows(NamedTuple):
    """Rows of a site in one call: indices along the site's dimension, of `extent`."""

    site: RowSite
    extent: int
    indices: list[int]


class Slices(NamedTuple):
    """Slices of an output that depend on the rows of a call: a dimension, its extent, and indices along it."""

    dim: int
    extent: int
    indices: list[int]

    def fit(self, shape: Sequence[int]) -> bool:
        """Return whether an output of `shape` has these slices. At another size it may have other dimensions."""
        return self.dim < len(shape) and shape[self.dim] == self.extent


def input_tensors(inputs: Arguments) -> list[torch.Tensor]:
    """Return the tensors of a call's inputs, in the order of `RowSite.tensor`."""
    return tensors_of([inputs.args, inputs.kwargs])


def chosen_rows(sites: Sequence[RowSite], inputs: Arguments, seed: int) -> list[Rows]:
    """Return rows for each input tensor, along its first site with enough rows. The choice follows from `seed`."""
    generator = torch.Generator().manual_seed(seed)
    given = input_tensors(inputs)
    chosen: dict[int, Rows] = {}
    for site in sites:
        if site.tensor in chosen or site.tensor >= len(given) or site.dim >= given[site.tensor].dim():
            continue
        leaf = given[site.tensor]
        extent = leaf.shape[site.dim]
        row_elements = leaf.numel() // max(extent, 1)
        count = min(_ROWS, extent // _ONE_IN, _MOST_ELEMENTS // max(row_elements, 1))
        if count and row_elements >= _LEAST_ELEMENTS and not has_shared_elements(leaf):
            drawn = torch.randint(extent, (count,), generator=generator).tolist()
            chosen[site.tensor] = Rows(site, extent, sorted(set(drawn)))
    return list(chosen.values())


def has_shared_elements(leaf: torch.Tensor) -> bool:
    """Return whether elements of a tensor are known to share memory, as in an expanded view."""
    return any(step == 0 and extent > 1 for extent, step in zip(leaf.shape, leaf.stride(), strict=True))


def write_rows(rows: Sequence[Rows], inputs: Arguments, seed: int, *, keep: bool) -> None:
    """Give the elements of rows random signs, in place. Without `keep`, do the same work and discard the values."""
    given = input_tensors(inputs)
    for number, (site, _, indices) in enumerate(rows):
        leaf = given[site.tensor]
        if format_of(leaf.dtype) is not None:
            leaf = leaf.view(torch.int8)  # The sign of a float is the sign of its byte.
        places = torch.tensor(indices, device=leaf.device)
        values = _values(leaf, site.dim, places, torch.Generator(leaf.device).manual_seed(seed + number))
        if keep:
            leaf.index_copy_(site.dim, places, values)


def _values(leaf: torch.Tensor, dim: int, places: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return the rows with random signs. Magnitudes stay the row's own, so no value leaves the problem's range."""
    given = leaf.index_select(dim, places)
    is_positive = torch.rand(given.shape, generator=generator, device=leaf.device) < 1 / 2
    if leaf.dtype == torch.int8:
        return torch.where(is_positive, given & 0x7F, given | -0x80)
    magnitudes = given.abs()
    return torch.where(is_positive, magnitudes, -magnitudes)


def slices_of(rows: Sequence[Rows]) -> dict[str, list[Slices]]:
    """Return the slices of each output, by path, that depend on the rows."""
    found: dict[str, list[Slices]] = {}
    for site, extent, indices in rows:
        for path, dim in site.outputs.items():
            found.setdefault(path, []).append(Slices(dim, extent, indices))
    return found
