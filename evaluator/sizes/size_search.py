"""A separate process for the search of a problem's sizes: the reference's source in, constants out.

The judge trusts a problem's code like its author, but a forward of excessive size must not kill the judge. Smallness is
counted and not timed, so a busy machine finds the same sizes.
"""

import itertools
import math
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import torch
from torch.utils.flop_counter import flop_registry

from evaluator.catalog.reference import names_used_by_model, read_reference, with_constants
from evaluator.errors import ProblemError
from evaluator.problem_code import CudaMeans, author_code, refuse_other_layouts
from evaluator.protocol.pytree import tensors_of
from evaluator.records import Constant
from evaluator.roofline.work_count import arguments, registered
from evaluator.sizes.degenerate import FILE, Operation, Operations, TooLarge, by_place, made_one
from evaluator.sizes.found_sizes import SizeQuestion, SizesFound, search_question

CAPS = (8192, 4096, 2048, 1024, 512, 256, 128, 96, 64, 48, 32, 24, 16, 12, 8, 6, 4)
_LEAST = 2
_LEAST_EXTENT = 5
"""Constants below are seldom extents: numbers of dimensions, kernel sizes, strides."""


def candidates(full: Mapping[str, Constant], fixed: Collection[str] = ()) -> Iterator[dict[str, Constant]]:
    """Yield the full constants, then with decreasing caps on all, then with a single constant unchanged.

    The constants in `fixed` are never changed.

    >>> [each["n"] for each in candidates({"n": 48})][:5]
    [48, 24, 16, 12, 8]
    """
    earlier: list[dict[str, Constant]] = []
    spared: tuple[str | None, ...] = (None, *full)
    for spare in spared:
        for cap in (1 << 62, *CAPS):
            scaled = {
                name: value if name == spare or name in fixed else capped(value, cap) for name, value in full.items()
            }
            if scaled not in earlier:
                earlier.append(scaled)
                yield scaled


def capped(value: Constant, cap: int) -> Constant:
    """Return the largest divisor of an integer up to `cap`: constants that must divide each other often still do.

    >>> capped(4096, 100), capped(1000, 100), capped(97, 64), capped(3, 2), capped(0.5, 8), capped([64, 3], 8)
    (64, 100, 64, 3, 0.5, [8, 3])
    """
    if isinstance(value, list):
        return [_capped(extent, cap) for extent in value]
    return value if isinstance(value, bool) or not isinstance(value, int) else _capped(value, cap)


def _capped(value: int, cap: int) -> int:
    if value <= max(cap, 2 * _LEAST):
        return value
    return next((divisor for divisor in range(cap, max(_LEAST, cap // 2) - 1, -1) if value % divisor == 0), cap)


def awkward_groups(constants: Mapping[str, Constant], fixed: Collection[str]) -> list[list[str]]:
    """Return the names of constants to change together: extents of equal values, and each alone.

    >>> awkward_groups({"m": 64, "k": 64, "n": 32, "bins": 8, "dim": 1}, fixed=("bins",))
    [['m', 'k'], ['n'], ['m'], ['k']]
    """
    names = [name for name, value in constants.items() if name not in fixed and _is_extent(value)]
    equal = [[candidate for candidate in names if constants[candidate] == constants[name]] for name in names]
    groups: list[list[str]] = []
    for group in (*equal, *([name] for name in names)):
        if group not in groups:
            groups.append(group)
    return groups


def awkward_values(value: Constant) -> list[Constant]:
    """Return extents near `value` that are multiples of no tile: a smaller prime, one less, one more.

    >>> awkward_values(64), awkward_values([64, 3])
    ([61, 63, 65], [[61, 3], [63, 3], [65, 3]])
    """
    if isinstance(value, list):
        return [list(extents) for extents in zip(*map(_awkward_integers, value), strict=True)]
    return [*_awkward_integers(value)] if isinstance(value, int) else [value]


def _is_extent(value: Constant) -> bool:
    return any(type(size) is int and size >= _LEAST_EXTENT for size in (value if isinstance(value, list) else [value]))


def _awkward_integers(value: int) -> tuple[int, int, int]:
    if value < _LEAST_EXTENT:
        return value, value, value
    return next(filter(_is_prime, range(value - 1, 1, -1))), value - 1, value + 1


def _is_prime(value: int) -> bool:
    return all(value % factor for factor in range(2, math.isqrt(value) + 1))


class ElementCounts(NamedTuple):
    """Numbers of elements in one forward: of inputs or weights, and of the outputs of all operations."""

    inputs: int
    outputs: int


MOST = (ElementCounts(1 << 18, 1 << 22), ElementCounts(1 << 21, 1 << 24), ElementCounts(1 << 25, 1 << 27))
"""Two square matrices of 256 fit the first limit. A whole network has weights that no constant reduces."""
_AS_IT_IS = ElementCounts(1 << 20, 1 << 22)
"""Limits of a file without products of matrices that keeps its constants: a call of its kernels takes milliseconds."""
_UNLIMITED = ElementCounts(1 << 62, 1 << 62)
_DRAWN = 16
"""Elements that get_inputs may make for each element of the inputs."""
_SEED = 0
_LEAST_HIDDEN = 16
"""An extent of outputs alone. Smaller constants that leave the inputs as they are may be sizes of a window."""

_Shapes = list[tuple[int, ...]]


class Traced(NamedTuple):
    """One forward: operations, numbers of input and output elements, and shapes of inputs and outputs.

    `has_nan`: an element of an output is not a number.
    """

    operations: list[Operation]
    size: ElementCounts
    inputs: _Shapes
    outputs: _Shapes
    has_nan: bool = False

    def is_within(self, most: ElementCounts) -> bool:
        """Return whether the forward is within the limits."""
        return self.size.inputs <= most.inputs and self.size.outputs <= most.outputs

    @property
    def has_products(self) -> bool:
        """Whether an operation multiplies matrices or convolves, so that its cost exceeds its elements by far."""
        return not _PRODUCTS.isdisjoint(operation.name for operation in self.operations)


_PRODUCTS = frozenset(packet.__name__ for packet in flop_registry)
"""Names of the operations whose floating-point operations PyTorch counts: products, convolutions, attention."""


def find(question: SizeQuestion) -> SizesFound:
    """Return the constants of a small size, unless the question has them, and those of an awkward size."""
    try:
        small = _small(question.source) if question.small is None else question.small
    except ProblemError as error:
        return SizesFound(why_broken=error.message.removeprefix(FILE))
    return SizesFound(small=small, awkward=None if small is None else _awkward(question.source, small))


def _small(source: str) -> dict[str, Constant] | None:
    """Return the largest constants at which the reference runs, is small, and keeps its branches and dimensions.

    A file that is small already keeps its constants.

    Raises:
        ProblemError: the reference does not run at its own size.
    """
    full = {name: literal.value for name, literal in read_reference(source, FILE).constants.items()}
    try:
        at_full = _traced(source, "cpu", _AS_IT_IS)
    except (TooLarge, MemoryError):
        pass
    else:
        if at_full.is_within(MOST[0]) or not at_full.has_products:
            return full
    smaller = _smaller(source, full)
    return _as_it_is(source, full) if smaller is None else smaller


def _as_it_is(source: str, full: dict[str, Constant]) -> dict[str, Constant] | None:
    """Return the constants of a file without a smaller size, unless the file is too large.

    Raises:
        ProblemError: the reference does not run at its own size.
    """
    try:
        _traced(source, "cpu", MOST[-1])
    except (TooLarge, MemoryError):
        return None
    return full


def _smaller(source: str, full: dict[str, Constant]) -> dict[str, Constant] | None:
    at_full = _try_trace(source, "meta")
    # Constants of the operation are changed only where no other change makes the reference small enough.
    texts = [
        [(constants, with_constants(source, constants, FILE)) for constants in candidates(full, unchanged)]
        for unchanged in (names_used_by_model(source), ())
    ]
    if at_full is None:
        return next(filter(None, map(_without_plan, texts)), None)
    planned = [_planned(candidate_texts, at_full) for candidate_texts in texts]
    for most in MOST:
        for constants, text, plan in itertools.chain(*planned):
            if plan.is_within(most) and _computed(text, most) is not None:
                return constants
    return None


_Texts = list[tuple[dict[str, Constant], str]]


def _without_plan(texts: _Texts) -> dict[str, Constant] | None:
    """Return the largest small constants of a reference that needs values, which the meta device lacks."""
    fits = ((constants, forward) for constants, text in texts if (forward := _computed(text, MOST[0])) is not None)
    return next((constants for constants, forward in fits if not made_one(forward.operations, None)), None)


def _planned(texts: _Texts, at_full: Traced) -> list[tuple[dict[str, Constant], str, Traced]]:
    """Return the constants at which the reference, on the meta device, is like that at full size."""
    traced = [(constants, text, plan) for constants, text in texts if (plan := _try_trace(text, "meta")) is not None]
    return [row for row in traced if _is_alike(row[2], at_full)]


def _is_alike(candidate: Traced, traced: Traced) -> bool:
    """Return whether a size takes the same branches, makes no dimension 1, and no value that is not a number."""
    same = by_place(candidate.operations).keys() == by_place(traced.operations).keys()
    return same and candidate.has_nan <= traced.has_nan and not made_one(candidate.operations, traced.operations)


def _awkward(source: str, small: dict[str, Constant]) -> dict[str, Constant] | None:
    """Return constants near `small` with extents that are multiples of no tile, as many of them as possible.

    None if no extent of an input or output can be changed.
    """
    at_small = _try_trace(with_constants(source, small, FILE), "cpu")
    if at_small is None:
        return None
    before = at_small
    most = ElementCounts(2 * at_small.size.inputs, 2 * at_small.size.outputs)
    unchanged = names_used_by_model(source)
    constants, done = dict(small), set[str]()
    for group in awkward_groups(small, unchanged):
        if not done.isdisjoint(group):
            continue
        for changed in _with_awkward(constants, group):
            forward = _try_trace(with_constants(source, changed, FILE), "cpu", most)
            if forward is not None and _is_alike(forward, at_small) and _shows(forward, before, small, group):
                constants, done, before = changed, done | set(group), forward
                break
    return constants if done else None


def _with_awkward(constants: dict[str, Constant], group: Collection[str]) -> Iterator[dict[str, Constant]]:
    for values in zip(*(awkward_values(constants[name]) for name in group), strict=True):
        yield {**constants, **dict(zip(group, values, strict=True))}


def _shows(forward: Traced, before: Traced, small: dict[str, Constant], group: Collection[str]) -> bool:
    """Return whether the changed constants are extents: the shape of an input differs, or of an output."""
    least = min(max(value) if isinstance(value := small[name], list) else int(value) for name in group)
    return forward.inputs != before.inputs or (least >= _LEAST_HIDDEN and forward.outputs != before.outputs)


def _computed(text: str, most: ElementCounts) -> Traced | None:
    """Run a forward with values; return None if it fails, exceeds `most`, or has values that are not numbers."""
    forward = _try_trace(text, "cpu", most)
    return forward if forward is not None and not forward.has_nan else None


def _try_trace(text: str, device: str, most: ElementCounts = _UNLIMITED) -> Traced | None:
    """Run a forward on `device`; return None if the problem's code raises: its constants are inconsistent."""
    try:
        return _traced(text, device, most)
    except (ProblemError, MemoryError):
        return None


def _traced(text: str, device: str, most: ElementCounts) -> Traced:
    """Run a forward on `device`.

    Raises:
        ProblemError: the problem's code raises, or its tensors cannot be judged.
        MemoryError: the forward exceeds the memory, or `most` (TooLarge).
    """
    on = torch.device(device)
    with registered() as module, on, CudaMeans(on), torch.no_grad():
        torch.manual_seed(_SEED)
        with author_code(FILE, "reading it"):
            exec(compile(text, FILE, "exec"), module.__dict__)  # noqa: S102 - the problem's own code
        with author_code(FILE, "get_inputs()"), Operations(_DRAWN * most.inputs):
            args, kwargs = arguments(module.__dict__["get_inputs"])
        refuse_other_layouts(FILE, [args, kwargs], "get_inputs()")
        with author_code(FILE, "get_init_inputs()"):
            init_args, init_kwargs = arguments(module.__dict__["get_init_inputs"])
        with author_code(FILE, "Model(...)"):
            model = module.__dict__["Model"](*init_args, **init_kwargs)
            weights = list(model.parameters())
        inputs = tensors_of([args, kwargs])
        size = max(sum(tensor.numel() for tensor in side) for side in (inputs, weights))
        if size > most.inputs:
            raise TooLarge
        shapes = [tuple(tensor.shape) for tensor in inputs]  # Forward may change its inputs.
        with author_code(FILE, "forward"), Operations(most.outputs) as trace:
            output = model(*args, **kwargs)
        refuse_other_layouts(FILE, output, "the reference's forward")
        leaves = tensors_of(output)
        _refuse_without_values(leaves, on)
        has_nan = device == "cpu" and any(bool(leaf.isnan().any()) for leaf in leaves)
    outputs = [tuple(leaf.shape) for leaf in leaves]
    return Traced(trace.operations, ElementCounts(size, trace.elements), shapes, outputs, has_nan)


def _refuse_without_values(leaves: list[torch.Tensor], on: torch.device) -> None:
    """Raise ProblemError for outputs that no grade can compare."""
    if not leaves:
        raise ProblemError(f"{FILE}: the reference's forward returns no tensor")
    for leaf in leaves:
        if not leaf.numel():
            message = f"{FILE}: an output of the reference has shape {list(leaf.shape)}, with no element to compare"
            raise ProblemError(message)
        if on.type == "cpu" and not bool(leaf.isfinite().any()):
            raise ProblemError(f"{FILE}: every element of an output of the reference is NaN or infinite")


run = search_question().answered_by(find)
