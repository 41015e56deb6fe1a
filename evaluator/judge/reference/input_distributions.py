"""Input distributions: inputs of a call with other values than the problem's own `get_inputs` draws.

A kernel that is correct only for positive or only for small numbers agrees with the reference on all inputs of this
kind. Some calls therefore have values of another distribution, and no submission knows these calls in advance.

The meaning of an input stays intact. Integers, booleans, floating-point tensors of whole numbers (labels, masks) or
with infinities (additive masks), and single numbers stay unchanged. Exact zeros stay zero, symmetric matrices stay
symmetric, sorted rows stay sorted. Codes of a format of few bits are drawn as values and rounded to the nearest code:
fp8 always, integers and packed bytes where the problem declares the format.
"""

import itertools
from collections.abc import Iterator, Mapping

import torch

from evaluator.judge.reference.cancelling_rows import has_shared_elements
from evaluator.judge.tensors.number_formats import elements, format_of, nearest, typical, wide
from evaluator.judge.tensors.pytree import Value, unravelled
from evaluator.protocol.pytree import mapped, tensors_of
from evaluator.records import ElementFormat, Layout, Profile

PROFILES = tuple(profile for profile in Profile if profile is not Profile.AS_GIVEN)
RULES = 11
"""Version of the drawn values and of the trials about distributions. Every change increments the version and
invalidates cached results."""

_PIECE_ELEMENTS = 1 << 24
"""Elements of a piece. With pieces, temporaries stay small beside a large input."""
_CORNER = 64
"""Number of rows and columns that classify a tensor."""
_EXPONENTS = 8
_SHIFT = {torch.float16: 5}
_DEFAULT_SHIFT = 10
_SHIFT_OF_CODES = 2
_FACTORS = {Profile.LARGE: 1, Profile.SMALL: -1}
"""Distributions of scaled inputs: the factor is two to the power of this sign times half to all of the dtype's shift,
drawn for each call and tensor. A mean over many values, as a loss, otherwise hardly differs from call to call."""
_OUTLIER = {torch.float16: 16.0}
_DEFAULT_OUTLIER = 64.0
_TRIES = 64
_ENDS = 4
"""One outlier in so many is not at an end. Three checked calls have outliers (`DistributionMix.checks`)."""
_NEAR_ONE = 1 / 64
"""Standard deviation of values about 1: the logarithm of a product of 4096 of them has a standard deviation of 1."""
_NEARNESS = {torch.float16: (2, 5), torch.bfloat16: (2, 5)}
_DEFAULT_NEARNESS = (5, 9)
"""Related values differ by a part of their size: two to the power of minus a number of this range, drawn for each call.
A squared distance by three products, or a divergence by two entropies, then loses most digits."""
_ZERO_ROWS_PART = 8
_OFFSET = 8.0
"""Mean over standard deviation. A variance computed as mean square minus squared mean stays within tolerance in
fp32."""


def change(
    profile: Profile,
    layouts: list[Layout],
    value: Value,
    seed: int,
    device: torch.device,
    forms: Mapping[int, ElementFormat] = {},
) -> Value:
    """Return `value` with values of `profile`, drawn from `seed`. `forms` has the declared formats by tensor number.

    Tensors are overwritten in place: memory has no room for a copy of a large input. Only tensors with overlapping
    elements are replaced, and tensors moved to a random layout of `layouts`.
    """
    generator = torch.Generator(device).manual_seed(seed)
    if profile is Profile.AS_GIVEN:
        return value
    numbers = itertools.count()
    earlier: list[torch.Tensor] = []

    def changed(leaf: torch.Tensor) -> torch.Tensor:
        form = forms.get(next(numbers)) or format_of(leaf.dtype)
        if form is None:
            has_meaning = left_alone(leaf)  # A mask has infinities, and no values to be near.
            values = _changed(profile, leaf, generator, None if has_meaning else _partner_of(leaf, earlier))
            earlier.extend([] if has_meaning else [values])
        else:
            values = _changed_codes(profile, leaf, form, generator)
        return _laid_out(values, layouts, generator)

    return mapped(value, changed)


def rehearse(
    profile: Profile, value: Value, seed: int, device: torch.device, forms: Mapping[int, ElementFormat] = {}
) -> None:
    """Do the work of `change`, for equal time, and discard the result; `value` stays unchanged."""
    if profile is Profile.AS_GIVEN:
        return
    generator = torch.Generator(device).manual_seed(seed)
    for number, leaf in enumerate(tensors_of(value)):
        if (form := forms.get(number) or format_of(leaf.dtype)) is not None:
            _codes(profile, leaf, form, generator)
            continue
        real = torch.view_as_real(leaf.resolve_conj()) if leaf.is_complex() else leaf
        if not left_alone(real):
            _write(profile, real, generator, keep=False)


def _partner_of(leaf: torch.Tensor, earlier: list[torch.Tensor]) -> torch.Tensor | None:
    """Return the first earlier tensor of the same shape and dtype, which related values are near; None without one."""
    return next((tensor for tensor in earlier if (tensor.shape, tensor.dtype) == (leaf.shape, leaf.dtype)), None)


def _changed(
    profile: Profile, leaf: torch.Tensor, generator: torch.Generator, partner: torch.Tensor | None = None
) -> torch.Tensor:
    if leaf.is_complex():
        parts = _changed(profile, torch.view_as_real(leaf.resolve_conj()), generator)
        return torch.view_as_complex(parts) if parts.stride(-1) == 1 else leaf
    if left_alone(leaf):
        return leaf
    tensor = _own_memory(leaf)
    _write(profile, tensor, generator, keep=True, partner=partner)
    return tensor


def _changed_codes(
    profile: Profile, leaf: torch.Tensor, form: ElementFormat, generator: torch.Generator
) -> torch.Tensor:
    codes = _codes(profile, leaf, form, generator)
    if codes is None:
        return leaf
    return codes if has_shared_elements(leaf) else leaf.copy_(codes)


def _codes(
    profile: Profile, leaf: torch.Tensor, form: ElementFormat, generator: torch.Generator
) -> torch.Tensor | None:
    """Return codes of a distribution, drawn as values in units of the format's typical value; None for those that stay.

    Values beyond the largest code become the largest code. Scales are smaller than in wide formats, and values about a
    mean stay below the largest code.
    """
    if form is ElementFormat.E8M0 or leaf.numel() < 2 or leaf.layout is not torch.strided or not leaf.dim():
        return None
    unit = typical(form)
    values = (elements(leaf, form).values / unit).float()
    _write(profile, values, generator, keep=True, shift=_SHIFT_OF_CODES)
    if profile is Profile.ILL_CONDITIONED:
        values /= _OFFSET / 2
    return nearest(values * unit, form)


def left_alone(leaf: torch.Tensor) -> bool:
    """Return whether the values of a tensor are never changed: codes, single numbers, other than floating-point."""
    return not leaf.is_floating_point() or leaf.numel() < 2 or leaf.layout is not torch.strided or _has_meaning(leaf)


def is_ordered(leaf: torch.Tensor) -> bool:
    """Return whether elements depend on one another: a symmetric matrix, or sorted rows."""
    return _is_symmetric(leaf) or _is_sorted(leaf)


def _write(
    profile: Profile,
    tensor: torch.Tensor,
    generator: torch.Generator,
    *,
    keep: bool,
    shift: int | None = None,
    partner: torch.Tensor | None = None,
) -> None:
    """Write values of `profile` where `tensor` is not zero; without `keep`, into scratch memory."""
    if profile is Profile.OUTLIERS:
        _put_outliers(tensor, generator, keep=keep)
        return
    symmetric, rising = _is_symmetric(tensor), _is_sorted(tensor)
    if profile in (Profile.RELATED, Profile.ZERO_ROWS):
        if not (symmetric or rising):
            change_rows = _relate if profile is Profile.RELATED else _clear_rows
            change_rows(tensor, partner, generator, keep=keep)
        return
    scratch = None if keep else torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    factor = _factor(profile, tensor, shift, generator) if profile in _FACTORS else None
    for piece, values in _pieces(profile, tensor, generator, symmetric=symmetric):
        target = piece if scratch is None else scratch.resize_(piece.shape)
        if factor is not None:
            torch.mul(piece, factor, out=target)
        else:
            _where_not_zero(values.to(tensor.dtype), piece, target)
    if symmetric and profile is not Profile.CONSTANT_ROWS:
        ordered = tensor.triu() + tensor.triu(1).mT
    elif rising and profile is not Profile.CONSTANT_ROWS:
        ordered = tensor.sort(-1).values
    else:
        return
    if keep:
        tensor.copy_(ordered)


def _relate(tensor: torch.Tensor, partner: torch.Tensor | None, generator: torch.Generator, *, keep: bool) -> None:
    """Bring values near those of `partner`; without a partner, each second row near the row before."""
    least, most = _NEARNESS.get(tensor.dtype, _DEFAULT_NEARNESS)
    drawn = torch.randint(least, most + 1, (), generator=generator, device=tensor.device)
    part = torch.exp2(-drawn.double()).to(tensor.dtype)
    if partner is not None:
        pairs = list(zip(_cut(tensor), _cut(partner), strict=True))
    elif tensor.dim() > 1 and tensor.shape[-2] > 1:
        even = tensor.shape[-2] // 2 * 2
        pairs = list(zip(_cut(tensor[..., 1:even:2, :]), _cut(tensor[..., 0:even:2, :]), strict=True))
    else:
        return
    for piece, near in pairs:
        values = torch.addcmul(near, piece, part)
        if keep:
            piece.copy_(torch.where(piece != 0, values, piece))


def _clear_rows(tensor: torch.Tensor, partner: torch.Tensor | None, generator: torch.Generator, *, keep: bool) -> None:
    """Set a part of the rows to zero, as padding is, and at least one. A vector has no rows."""
    del partner
    if tensor.dim() < 2:
        return
    drawn = torch.rand(tensor.shape[:-1], generator=generator, device=tensor.device)
    is_cleared = (drawn < 1 / _ZERO_ROWS_PART) | (drawn == drawn.amin())
    if keep:
        tensor.masked_fill_(is_cleared.unsqueeze(-1), 0)


def _where_not_zero(values: torch.Tensor, piece: torch.Tensor, target: torch.Tensor) -> None:
    """Write `values` into `target` where `piece` is not 0, and 0 elsewhere.

    On a GPU, the gradient of hardshrink with threshold 0 does both in a single pass over memory. A comparison and
    `torch.where` need two passes. On a CPU, this gradient is 0 for some NaNs and not for others, depending on the
    position of the element.
    """
    if piece.is_cuda:
        torch.ops.aten.hardshrink_backward.grad_input(values, piece, 0, grad_input=target)
    else:
        torch.where(piece != 0, values, torch.zeros((), dtype=values.dtype), out=target)


def _factor(profile: Profile, tensor: torch.Tensor, shift: int | None, generator: torch.Generator) -> torch.Tensor:
    most = _SHIFT.get(tensor.dtype, _DEFAULT_SHIFT) if shift is None else shift
    exponent = torch.randint(most // 2, most + 1, (), generator=generator, device=tensor.device)
    return torch.exp2(_FACTORS[profile] * exponent.double()).to(tensor.dtype)


def _values(profile: Profile, shape: tuple[int, ...], like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return random values of `shape`."""
    match profile:
        case Profile.SIGNED_NORMAL:
            return _normal(shape, like, generator)
        case Profile.MIXED_MAGNITUDES:
            exponents = torch.randint(-_EXPONENTS, _EXPONENTS + 1, shape, generator=generator, device=like.device)
            return torch.ldexp(_normal(shape, like, generator), exponents)
        case Profile.ZEROS_AND_TIES:
            return (_normal(shape, like, generator) * 2).round().clamp(-4, 4) / 2
        case Profile.ILL_CONDITIONED:
            return _normal(shape, like, generator) + _OFFSET
        case Profile.NEAR_ONE:
            return 1 + _normal(shape, like, generator) * _NEAR_ONE
        case _:
            raise ValueError(f"{profile.value} is not drawn element by element")


def _normal(shape: tuple[int, ...], like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return standard normal values, in float32 at least."""
    dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
    return torch.randn(shape, generator=generator, dtype=dtype, device=like.device)


def _own_memory(leaf: torch.Tensor) -> torch.Tensor:
    """Return `leaf`, or a copy if elements share memory or if conjugation or negation is lazy."""
    overlapping = has_shared_elements(leaf)
    return leaf.clone(memory_format=torch.contiguous_format) if overlapping or leaf.is_conj() or leaf.is_neg() else leaf


def _pieces(
    profile: Profile, tensor: torch.Tensor, generator: torch.Generator, *, symmetric: bool
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the pieces of a tensor with their random values.

    Random numbers are the largest cost, so a large tensor reuses values drawn once: each piece starts at another
    position.
    """
    # Drawn for every distribution: the next numbers of the generator do not depend on the distribution.
    sign = 1.0 if torch.rand((), generator=generator, device=tensor.device) < 0.5 else -1.0
    if profile is Profile.CONSTANT_ROWS:
        rows = (1, 1) if symmetric else (tensor.shape[-2] if tensor.dim() > 1 else 1, 1)
        values = _normal((*tensor.shape[:-2], *rows) if tensor.dim() > 1 else (1,), tensor, generator)
        # A single sign: rows of both signs may cancel in a product, down to the error of operands rounded to TF32.
        values = (sign * values.abs()).expand(tensor.shape)
        yield from zip(_cut(tensor), _cut(values), strict=True)
        return
    sign = sign if profile is Profile.ILL_CONDITIONED else 1.0  # 1 has no sign of its own in a product.
    whole = tensor.view(-1) if tensor.is_contiguous() else tensor
    pieces = list(_cut(whole))
    if profile in _FACTORS:
        yield from ((piece, piece) for piece in pieces)
        return
    largest = max(piece.numel() for piece in pieces)
    if len(pieces) == 1:
        yield pieces[0], sign * _values(profile, pieces[0].shape, tensor, generator)
        return
    drawn = sign * _values(profile, (2 * largest,), tensor, generator)
    starts = torch.randint(largest, (len(pieces),), generator=generator, device=tensor.device).tolist()
    for piece, start in zip(pieces, starts, strict=True):
        yield piece, drawn[start : start + piece.numel()].view(piece.shape)


def _cut(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    rows = max(_PIECE_ELEMENTS * tensor.shape[0] // tensor.numel(), 1) if tensor.dim() else 1
    return torch.split(tensor, rows) if tensor.dim() else (tensor,)


def _corner(leaf: torch.Tensor) -> torch.Tensor:
    """Return the first rows and columns of the first matrix."""
    matrix = leaf[(0,) * (leaf.dim() - 2)] if leaf.dim() > 1 else leaf.reshape(1, -1)
    return wide(matrix[:_CORNER, : max(_CORNER, _CORNER * _CORNER // max(len(matrix), 1))])


def _has_meaning(leaf: torch.Tensor) -> bool:
    """Return whether values are codes, as whole numbers and infinities are."""
    corner = _corner(leaf).double()
    return bool((corner == corner.round()).all() | ~torch.isfinite(corner).all())


def _is_symmetric(leaf: torch.Tensor) -> bool:
    if leaf.dim() < 2 or leaf.shape[-1] != leaf.shape[-2] or leaf.shape[-1] == 1:
        return False
    corner = _corner(leaf)[:, :_CORNER]
    return bool((corner == corner.mT).all() & (corner != corner.reshape(-1)[0]).any())


def _is_sorted(leaf: torch.Tensor) -> bool:
    corner = _corner(leaf)
    steps = corner[:, 1:] - corner[:, :-1]
    return corner.shape[1] > 8 and bool((steps >= 0).all() & (steps > 0).any())


def _put_outliers(tensor: torch.Tensor, generator: torch.Generator, *, keep: bool) -> None:
    """Write an outlier of each sign; the rest stays unchanged.

    A loop that ends too early leaves out the last element of the tensor, or of each row (`_with_ends`). In the other
    calls, a submission recognises outliers only by all values, not by the last.
    """
    size = _corner(tensor).double().abs().max() * _OUTLIER.get(tensor.dtype, _DEFAULT_OUTLIER)
    drawn = torch.randint(tensor.numel(), (2 * _TRIES,), generator=generator, device=tensor.device)
    symmetric = _is_symmetric(tensor)
    places = unravelled(_with_ends(drawn, tensor.shape, generator, has_rows=not symmetric), tensor.shape)
    if symmetric:
        places = (*places[:-2], places[-1], places[-1])
    is_nonzero = tensor[places] != 0
    for start, value in ((0, size), (_TRIES, -size)):
        first = start + int(is_nonzero[start : start + _TRIES].to(torch.uint8).argmax())
        if keep and bool(is_nonzero[first]):
            tensor[tuple(index[first] for index in places)] = value.to(tensor.dtype)


def _with_ends(drawn: torch.Tensor, shape: torch.Size, generator: torch.Generator, *, has_rows: bool) -> torch.Tensor:
    """Return places of elements. In three of four calls, the first positive place is the tensor's last element.

    Independently, in three of four calls, the first negative place is the end of a random row, if the end is free.
    """
    places = drawn.clone()
    last = shape.numel() - 1
    end_of_row = (drawn[_TRIES] // shape[-1] + 1) * shape[-1] - 1
    is_last, ends_row = torch.randint(_ENDS, (2,), generator=generator, device=drawn.device) != 0
    places[0] = torch.where(is_last, last, drawn[0])
    ends_row &= ~(is_last & (end_of_row == last)) & has_rows
    places[_TRIES] = torch.where(ends_row, end_of_row, drawn[_TRIES])
    return places


def _laid_out(leaf: torch.Tensor, layouts: list[Layout], generator: torch.Generator) -> torch.Tensor:
    """Return a tensor in a random layout of `layouts`, or unchanged."""
    if not layouts or leaf.layout is not torch.strided or leaf.numel() == 0:
        return leaf
    choice = int(torch.randint(len(layouts) + 1, (), generator=generator, device=leaf.device))
    if choice == len(layouts):
        return leaf
    match layouts[choice]:
        case Layout.TRANSPOSED:
            return leaf.mT.contiguous().mT if leaf.dim() > 1 else leaf
        case Layout.GAPS:
            wide = leaf.new_zeros((*leaf.shape[:-1], 2 * leaf.shape[-1])) if leaf.dim() else leaf.new_zeros(2)
            return wide[..., ::2].view(leaf.shape).copy_(leaf)
        case Layout.OFFSET:
            return leaf.new_zeros(leaf.numel() + 1)[1:].view(leaf.shape).copy_(leaf)
