"""Mapping between a submission's tensors and the reference's parameters, and updates of their values."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from evaluator.protocol.frames import BufferValue
from evaluator.protocol.frames.bounds import MOST_BUFFER_BYTES


def counterparts(
    model: Any, state: Mapping[str, torch.Tensor], changing: Sequence[str], *, copied: bool
) -> dict[str, torch.Tensor]:
    """Return `model`'s counterpart of each `changing` reference parameter, viewed in the reference's shape.

    After a `copied` state, match by name. Otherwise match by equal values under the same seed: the same shape, a
    reshaped or a transposed tensor. Ambiguous matches are skipped.
    """
    if not isinstance(model, torch.nn.Module) or not changing:
        return {}
    if copied:
        own = dict(model.state_dict())
        return {name: own[name] for name in changing}
    known = list(_tensors(model))
    found: dict[str, torch.Tensor] = {}
    for name in changing:
        fits = {}
        for own_name, tensor in known:
            if (view := _as_in(state[name], tensor)) is not None:
                fits[tensor.data_ptr()] = (own_name, view)
        named = [view for own_name, view in fits.values() if own_name == name]
        if named or len(fits) == 1:
            found[name] = named[0] if named else next(iter(fits.values()))[1]
    places = [view.data_ptr() for view in found.values()]
    tied = len({state[name].data_ptr() for name in found})
    return found if len(set(places)) >= tied else {}


def buffer_values(model: Any, names: Sequence[str]) -> dict[str, BufferValue]:
    """Return the values of `model`'s buffers that correspond to the reference's buffers `names`.

    A buffer of the same name corresponds. Otherwise a single buffer with the same last part of the name corresponds,
    if the name's last part is unique on both sides.
    """
    if not isinstance(model, torch.nn.Module):
        return {}
    own = {**dict(_tensors(model)), **dict(model.named_buffers())}
    values = {}
    for name in names:
        found = own.get(name)
        if found is None and sum(_last(each) == _last(name) for each in names) == 1:
            alike = [tensor for own_name, tensor in own.items() if _last(own_name) == _last(name)]
            found = alike[0] if len(alike) == 1 else None
        if found is None or found.layout is not torch.strided:
            continue
        if found.numel() * found.element_size() <= MOST_BUFFER_BYTES:
            kept = found.detach().cpu().contiguous()
            flat = kept.as_strided((kept.numel(),), (1,)).view(torch.uint8)  # One element may have any stride.
            dtype = str(found.dtype).removeprefix("torch.")
            values[name] = BufferValue(dtype=dtype, shape=tuple(found.shape), data=bytes(flat.tolist()))
    return values


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _tensors(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield a model's named tensors: the state dict, and plain tensor attributes of modules."""
    yield from model.state_dict().items()
    for prefix, module in model.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor):
                yield f"{prefix}.{name}".removeprefix("."), value.detach()


def _as_in(wanted: torch.Tensor, own: torch.Tensor) -> torch.Tensor | None:
    """Return `own` viewed in the shape of `wanted`; None if the values differ."""
    if own.numel() != wanted.numel() or own.dtype != wanted.dtype or own.layout is not torch.strided:
        return None
    ways = [own] if own.shape == wanted.shape else []
    if own.dim() == 2 and tuple(own.t().shape) == tuple(wanted.shape):
        ways.append(own.t())
    if own.is_contiguous() and own.shape != wanted.shape:
        ways.append(own.view(wanted.shape))
    return next((way for way in ways if way.device == wanted.device and torch.equal(way, wanted)), None)


@torch.no_grad()
def follow(own: Mapping[str, torch.Tensor], given: Mapping[str, torch.Tensor]) -> None:
    """Copy the `given` values, and increment each tensor's version counter like an optimizer step.

    PyTorch does not see the judge's writes to shared memory, and caches of packed weights depend on version counters.
    """
    for name, value in given.items():
        own[name].copy_(value)
    counted = [tensor for tensor in own.values() if not tensor.is_inference()]
    versions = [tensor._version + 1 for tensor in counted]  # noqa: SLF001 - documented nowhere else, and stable
    torch._C._autograd._unsafe_set_version_counter(tuple(counted), tuple(versions))  # noqa: SLF001 - what FSDP uses
