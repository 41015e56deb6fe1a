"""Correspondence of a submission's tensors with the reference's parameters and buffers, under any names.

Both constructors ran under the same seed. Equal values of varied tensors therefore prove a pair. All other pairs are
assumptions: constant tensors (a norm's 1 and 0), values with an initialiser's constant rounded, and values of another
initialiser. An assumed pair has the same dtype and the same shape, apart from dimensions of size 1, and is unique. The
judge learns the assumed pairs: a wrong assumption must refuse no right answer (`stages.check`).

A false correspondence harms only the submission: the pairs decide where the judge writes in the submission's memory.
"""

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn.parameter import is_lazy

_CLOSE = {torch.float64: 1e-3, torch.float32: 1e-3, torch.float16: 2e-3, torch.bfloat16: 1e-2}
"""Largest relative difference of values from equal initialisers with differently rounded constants: for few bits, a
step of the format."""
_CLOSE_TO_ZERO = 1e-6
"""Largest difference in largest values of the tensor: an initialiser's rounding is absolute, near 0 too."""
_FIRST_BLOCK, _BLOCK = 1 << 10, 1 << 20
"""Numbers of elements compared first, and at most at a time. The first block tells most tensors apart: without it, 60
parameters of 512 x 512 under other names took 2.6 s on a CPU."""
_ROLES = {
    "weight": ("weight", "weights", "gamma", "scale", "w"),
    "bias": ("bias", "beta", "shift", "b"),
    "running mean": ("running mean", "moving mean", "mean"),
    "running var": ("running var", "running variance", "moving var", "moving variance", "var", "variance"),
}
_ROLE_OF = {word: role for role, words in _ROLES.items() for word in words}
_MOST_WORDS = 2
"""Largest number of words of a role."""

_Rule = Callable[[str, torch.Tensor], Iterable[Hashable]]
"""Keys of a named tensor: tensors with a common key correspond."""


class Counterpart(NamedTuple):
    """A submission's tensor for a tensor of the reference, viewed in the reference's shape.

    `is_proven`: the values are equal, and varied or of the same name.
    """

    own_name: str
    view: torch.Tensor
    is_proven: bool


class _ModelTensor(NamedTuple):
    """A named tensor of a submission. `is_stored`: in the state dict, not a plain attribute."""

    name: str
    tensor: torch.Tensor
    is_stored: bool


def correspondence(model: Any, state: Mapping[str, torch.Tensor]) -> dict[str, Counterpart]:
    """Return the submission's counterparts of the reference's tensors, by the reference's names.

    Ambiguous tensors have no counterpart, and no tensor is a counterpart of two.
    """
    if not isinstance(model, torch.nn.Module):
        return {}
    owned = [entry for entry in _model_tensors(model) if entry.tensor.layout is torch.strided and entry.tensor.numel()]
    pairs = _by_values(owned, state)
    for stored_alone in (True, False):
        for rule in _RULES:
            used = {pair.view.data_ptr() for pair in pairs.values()}
            free = (entry for entry in owned if entry.tensor.data_ptr() not in used and _writable(entry))
            candidates = [entry for entry in free if entry.is_stored or not stored_alone]
            missing = {name: value for name, value in state.items() if name not in pairs and value.numel()}
            pairs |= _unique(candidates, missing, rule)
    return pairs


def _model_tensors(model: torch.nn.Module) -> Iterator[_ModelTensor]:
    for name, value in model.state_dict().items():
        if has_elements(value):  # `get_extra_state` may return other values.
            yield _ModelTensor(name, value, is_stored=True)
    for prefix, module in model.named_modules():
        for name, value in vars(module).items():
            if has_elements(value):
                yield _ModelTensor(f"{prefix}.{name}".removeprefix("."), value.detach(), is_stored=False)


def has_elements(value: Any) -> bool:
    """Return whether a value is a tensor with elements in memory, one number each.

    PyTorch ends the process at a view of a quantised tensor as integers. Nested tensors have no strides, tensors of
    "meta" no values, and parameters of lazy modules no shape.
    """
    if not isinstance(value, torch.Tensor) or is_lazy(value):
        return False
    return not (value.is_quantized or value.is_nested or value.is_meta)


def _by_values(owned: Iterable[_ModelTensor], state: Mapping[str, torch.Tensor]) -> dict[str, Counterpart]:
    """Return the pairs of equal values, then of close values: the same shape, reshaped or transposed."""
    alike: dict[Hashable, list[_ModelTensor]] = {}
    for entry in owned:
        alike.setdefault((entry.tensor.dtype, entry.tensor.numel()), []).append(entry)
    pairs: dict[str, Counterpart] = {}
    for is_equal in (True, False):
        used = {pair.view.data_ptr() for pair in pairs.values()}  # None in the first round.
        for name, expected in state.items():
            fitting = alike.get((expected.dtype, expected.numel()), [])
            if name in pairs or not fitting:
                continue
            if not _is_varied(expected):  # Many constants are equal: without the same name, other rules decide.
                fitting = [entry for entry in fitting if is_equal and entry.name == name]
            test = is_equal_to if is_equal else _is_close
            free = (entry for entry in fitting if entry.tensor.data_ptr() not in used)
            fits = _fits(free if is_equal else filter(_writable, free), expected, test)
            same_name = next((names for names in fits.values() if name in names), None)
            if same_name is not None:
                pairs[name] = Counterpart(name, same_name[name], is_equal)
            elif len(fits) == 1:
                own_name, view = next(iter(next(iter(fits.values())).items()))
                pairs[name] = Counterpart(own_name, view, is_equal)
    pairs_at = Counter(pair.view.data_ptr() for pair in pairs.values())
    return {name: pair for name, pair in pairs.items() if pairs_at[pair.view.data_ptr()] == 1}


def _fits(
    owned: Iterable[_ModelTensor], expected: torch.Tensor, test: Callable[[torch.Tensor, torch.Tensor], bool]
) -> dict[int, dict[str, torch.Tensor]]:
    """Return views that pass `test`, in the shape of `expected`: by address and own name."""
    fits: dict[int, dict[str, torch.Tensor]] = {}
    for entry in owned:
        view = next((view for view in _views(entry.tensor, expected) if test(view, expected)), None)
        if view is not None:
            fits.setdefault(entry.tensor.data_ptr(), {})[entry.name] = view
    return fits


def _views(tensor: torch.Tensor, expected: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield views of `tensor` in the shape of `expected`: unchanged, transposed, reshaped."""
    if tensor.numel() != expected.numel() or tensor.dtype != expected.dtype or tensor.device != expected.device:
        return
    if tensor.shape == expected.shape:
        yield tensor
    if tensor.dim() == 2 and tuple(tensor.t().shape) == tuple(expected.shape):
        yield tensor.t()
    if tensor.shape != expected.shape and tensor.is_contiguous():
        yield tensor.view(expected.shape)


def is_equal_to(tensor: torch.Tensor, expected: torch.Tensor) -> bool:
    """Return whether all values are equal. Compared block by block: on a GPU, each element would take a byte."""
    if tensor.shape != expected.shape or not expected.numel():
        return tensor.shape == expected.shape
    left, right = (tensor, expected) if expected.dtype.itemsize > 1 else (_bits(tensor), _bits(expected))
    if left.is_contiguous() and right.is_contiguous():
        left, right = left.view(-1), right.view(-1)  # A single row may be long.
    return all(torch.equal(left[rows], right[rows]) for rows in _blocks(right))


def _blocks(tensor: torch.Tensor) -> Iterator[slice]:
    """Yield the rows of consecutive blocks: a small one first, since most tensors differ there."""
    start, block = 0, _FIRST_BLOCK
    while start < len(tensor):
        rows = max(block * len(tensor) // tensor.numel(), 1)
        yield slice(start, start + rows)
        start, block = start + rows, _BLOCK


def _is_close(tensor: torch.Tensor, expected: torch.Tensor) -> bool:
    """Return whether all values agree within an initialiser's rounding. Compared block by block, to save memory."""
    if expected.dtype not in _CLOSE or not expected.dim():
        return False
    tolerance = _CLOSE[expected.dtype]
    for rows in _blocks(expected):
        left, right = tensor[rows], expected[rows]
        limits = right.abs() * tolerance + right.abs().amax() * _CLOSE_TO_ZERO
        if not bool(((left - right).abs() <= limits).all()):
            return False
    return True


def _is_varied(value: torch.Tensor) -> bool:
    bits = _bits(value)
    return bool((bits != bits[(0,) * bits.dim()]).any())


def _bits(value: torch.Tensor) -> torch.Tensor:
    """Return numbers of a byte as integers: PyTorch compares not all formats of a byte."""
    return value.view(torch.int8) if value.dtype.itemsize == 1 else value


def _unique(owned: Iterable[_ModelTensor], state: Mapping[str, torch.Tensor], rule: _Rule) -> dict[str, Counterpart]:
    """Return the pairs of the same kind with a common key by `rule`, without another candidate on either side."""
    by_key: dict[Hashable, list[_ModelTensor]] = {}
    for entry in owned:
        for key in rule(entry.name, entry.tensor):
            by_key.setdefault((_kind(entry.tensor), key), []).append(entry)
    matches: dict[str, dict[int, _ModelTensor]] = {}
    for name, expected in state.items():
        keys = [(_kind(expected), key) for key in rule(name, expected)]
        matches[name] = {entry.tensor.data_ptr(): entry for key in keys for entry in by_key.get(key, [])}
    match_counts = Counter(address for fits in matches.values() for address in fits)
    pairs = {}
    for name, fits in matches.items():
        if len(fits) == 1 and match_counts[(address := next(iter(fits)))] == 1:
            entry = fits[address]
            pairs[name] = Counterpart(entry.name, entry.tensor.view(state[name].shape), is_proven=False)
    return pairs


def _kind(value: torch.Tensor) -> tuple[Hashable, ...]:
    return value.dtype, value.device, tuple(size for size in value.shape if size > 1)


def _writable(entry: _ModelTensor) -> bool:
    """Return whether values can be copied into a tensor: not if expanded, nor if made in inference mode."""
    strides = zip(entry.tensor.stride(), entry.tensor.shape, strict=True)
    return not entry.tensor.is_inference() and all(step for step, size in strides if size > 1)


def _full_name(name: str, _: torch.Tensor) -> Iterator[Hashable]:
    yield name


def _module_and_word(name: str, _: torch.Tensor) -> Iterator[Hashable]:
    """Yield a name without separators; and with the initials of the module.

    >>> sorted(_module_and_word("batch_norm.weight", torch.ones(1)))
    [('batchnorm', 'weight'), ('bn', 'weight')]
    """
    *module, word = _words(name)
    yield from ((form, word) for form in _forms(module))


def _module_and_role(name: str, _: torch.Tensor) -> Iterator[Hashable]:
    """Yield a module with the usual word for the tensor's role. A name without a module has no key.

    >>> sorted(_module_and_role("batch_norm.gamma", torch.ones(1)))
    [('batchnorm', 'weight'), ('bn', 'weight')]
    """
    module, role = _parts(name)
    yield from ((form, role) for form in _forms(module) if module)


def _word(name: str, _: torch.Tensor) -> Iterator[Hashable]:
    yield _words(name)[-1]


def _role(name: str, _: torch.Tensor) -> Iterator[Hashable]:
    yield _parts(name)[1]


def _constant(_: str, value: torch.Tensor) -> Iterator[Hashable]:
    """Yield the value of all elements, under any name; equal varied values are a proof without a name."""
    if not _is_varied(value):
        yield _bits(value)[(0,) * value.dim()].item()


def _forms(module: Sequence[str]) -> Iterator[str]:
    yield "".join(module)
    if len(module) > 1:
        yield "".join(word[0] + re.sub("^[^0-9]+", "", word[1:]) for word in module)


def _words(name: str) -> list[str]:
    """Return the words of a name; never none.

    >>> _words("convTranspose2d.bn1_W")
    ['conv', 'transpose2d', 'bn1', 'w']
    """
    return [word.lower() for word in re.findall(r"[A-Z]*[^A-Z._]+|[A-Z]+", name)] or [""]


def _parts(name: str) -> tuple[list[str], str]:
    """Return the words of the module's name, and the role of the tensor.

    >>> _parts("layers.0.batch_norm.moving_mean")
    (['layers', '0', 'batch', 'norm'], 'running mean')
    >>> _parts("gemmBias")
    (['gemm'], 'bias')
    """
    words = _words(name)
    for count in range(_MOST_WORDS, 0, -1):
        if (role := _ROLE_OF.get(" ".join(words[-count:]))) is not None:
            return words[:-count], role
    return words[:-1], words[-1]


_RULES: tuple[_Rule, ...] = (_full_name, _module_and_word, _module_and_role, _word, _role, _constant)
"""Stronger evidence first: a pair takes tensors away from other pairs."""
