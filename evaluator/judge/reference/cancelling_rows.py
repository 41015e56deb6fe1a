"""Secret rows: a few rows of each call with the problem's own input values that show the rounding of products.

In a sum of positive terms, the roundings of the terms average out: a product in TF32 is then as close to the exact
value as a product in fp32. Two kinds of rows show each rounding in full. A row with random signs has a sum small beside
the terms. A concentrated row has a few large elements: a sum of few terms, with values of the problem. A submission in
search of signs does not see a concentrated row. Each call draws the kind.

A row is a slice of an input along a dimension: a row of a matrix, an item of a batch, a channel. A single slice of the
output depends on a row, and other slices hardly. `setup.row_sites` finds the dimensions by trial.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

from evaluator.judge.tensors.call_arguments import Arguments
from evaluator.judge.tensors.number_formats import format_of
from evaluator.protocol.pytree import tensors_of
from evaluator.records import RowSite

ROWS_NAME = "secret rows of a call with random signs or few large elements"
_ROWS = 8
_ONE_IN, _CONCENTRATED_ONE_IN = 8, 64
"""At most an eighth of the rows cancel, and of few rows at least one. The reason: the time of a call is quoted for the
problem's own values. Fewer rows are concentrated: a concentrated row has another mean, and the mean of all elements
must not tell."""
_KEPT = 4
_REST, _LEAST_REST = 2.0**-12, 2.0**-17
"""Elements of a concentrated row with unchanged size, about, and the factor of all other elements: at most one over
their number, since a sum over 131072 elements would otherwise be a sum of many terms again, whose roundings average
out. In longer rows an accumulator that holds a large element would lose smaller ones."""
_LEAST_ELEMENTS = 4
"""A shorter row has no mean to speak of."""
_MOST_ELEMENTS = 1 << 22
"""Limit of the overwritten elements of a tensor. Temporaries stay small beside a large input."""


class Rows(NamedTuple):
    """Rows of a site in a call: indices along the site's dimension, of `extent`."""

    site: RowSite
    extent: int
    indices: list[int]
    concentrated: bool = False


class Slices(NamedTuple):
    """Slices of an output that depend on the rows of a call: dimension, extent, and indices along the dimension."""

    dim: int
    extent: int
    indices: list[int]
    concentrated: bool = False

    def fit(self, shape: Sequence[int]) -> bool:
        """Return whether an output of `shape` has the slices. At another size, an output may have other dimensions."""
        return self.dim < len(shape) and shape[self.dim] == self.extent


def input_tensors(inputs: Arguments) -> list[torch.Tensor]:
    """Return the tensors of a call's inputs, in the order of `RowSite.tensor`."""
    return tensors_of([inputs.args, inputs.kwargs])


def chosen_rows(sites: Sequence[RowSite], inputs: Arguments, seed: int) -> list[Rows]:
    """Return rows for each input tensor, along its first site with enough rows. The choice follows from `seed`."""
    generator = torch.Generator().manual_seed(seed)
    prefers_concentrated = bool(torch.randint(2, (), generator=generator))
    tensors = input_tensors(inputs)
    chosen: dict[int, Rows] = {}
    for site in sites:
        if site.tensor in chosen or site.tensor >= len(tensors) or site.dim >= tensors[site.tensor].dim():
            continue
        leaf = tensors[site.tensor]
        extent = leaf.shape[site.dim]
        row_elements = leaf.numel() // max(extent, 1)
        concentrated = site.concentrated and (prefers_concentrated or not site.signs)
        one_in = _CONCENTRATED_ONE_IN if concentrated else _ONE_IN
        count = min(_ROWS, max(extent // one_in, 1), _MOST_ELEMENTS // max(row_elements, 1))
        if count and extent > 1 and row_elements >= _LEAST_ELEMENTS and not has_shared_elements(leaf):
            drawn = torch.randint(extent, (count,), generator=generator).tolist()
            chosen[site.tensor] = Rows(site, extent, sorted(set(drawn)), concentrated)
    return list(chosen.values())


def has_shared_elements(leaf: torch.Tensor) -> bool:
    """Return whether elements of a tensor are known to share memory, as in an expanded view."""
    return any(step == 0 and extent > 1 for extent, step in zip(leaf.shape, leaf.stride(), strict=True))


def write_rows(rows: Sequence[Rows], inputs: Arguments, seed: int, *, keep: bool) -> None:
    """Write rows in place: random signs, or a few large elements. Without `keep`, discard the values."""
    tensors = input_tensors(inputs)
    for number, (site, _, indices, concentrated) in enumerate(rows):
        leaf = tensors[site.tensor]
        if format_of(leaf.dtype) is not None:
            leaf = leaf.view(torch.int8)  # The sign of a float is the sign of its byte.
        places = torch.tensor(indices).to(leaf.device, non_blocking=True)  # torch.tensor on a GPU waits for it.
        generator = torch.Generator(leaf.device).manual_seed(seed + number)
        drawn = leaf.index_select(site.dim, places)
        values = _concentrated(drawn, site.dim, generator) if concentrated else _with_signs(drawn, generator)
        if keep:
            leaf.index_copy_(site.dim, places, values)


def _with_signs(rows: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return rows with random signs. Magnitudes stay the row's own: no value leaves the problem's range."""
    is_positive = torch.rand(rows.shape, generator=generator, device=rows.device) < 1 / 2
    if rows.dtype == torch.int8:
        return torch.where(is_positive, rows & 0x7F, rows | -0x80)
    magnitudes = rows.abs()
    return torch.where(is_positive, magnitudes, -magnitudes)


def _concentrated(rows: torch.Tensor, dim: int, generator: torch.Generator) -> torch.Tensor:
    """Return rows in which all but a few elements are small; codes in fp8 return unchanged."""
    if rows.dtype == torch.int8:
        return rows
    elements = rows.numel() // rows.shape[dim]
    is_kept = torch.rand(rows.shape, generator=generator, device=rows.device) < _KEPT / elements
    return torch.where(is_kept, rows, rows * min(_REST, max(1 / elements, _LEAST_REST)))


def slices_of(rows: Sequence[Rows]) -> dict[str, list[Slices]]:
    """Return the slices of each output, by path, that depend on the rows."""
    slices: dict[str, list[Slices]] = {}
    for site, extent, indices, concentrated in rows:
        for path, dim in site.outputs.items():
            slices.setdefault(path, []).append(Slices(dim, extent, indices, concentrated))
    return slices


def slices_within(slices: Mapping[str, Sequence[Slices]], outputs: Mapping[str, object]) -> dict[str, list[Slices]]:
    """Return the slices that the outputs have, both by path. At another size, an output may have other dimensions."""
    within: dict[str, list[Slices]] = {}
    for path, value in outputs.items():
        fitting = [rows for rows in slices.get(path, []) if isinstance(value, torch.Tensor) and rows.fit(value.shape)]
        within |= {path: fitting} if fitting else {}
    return within
