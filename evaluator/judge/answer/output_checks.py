"""Checks of an answer before the comparison of values, and the shortest comparison: equality."""

from collections.abc import Callable, Iterable, Iterator, Mapping

import torch

from evaluator.findings import Code, finding
from evaluator.findings.comparing import NEARLY_ALL
from evaluator.judge.clock.clock import OutputSample
from evaluator.judge.clock.output_words import MemorySamples
from evaluator.judge.reference.reference import Honest, by_path
from evaluator.judge.tensors.number_formats import are_equal, comparable
from evaluator.judge.tensors.output_views import OutputViews
from evaluator.judge.tensors.pytree import AnswerPair, LaidOut, Value, unravelled
from evaluator.protocol import model_call
from evaluator.protocol.frames import DictItems, Done, Items, Node, TensorView
from evaluator.records import Finding, TensorCheck

_AT_ONCE = 16
"""Comparisons queued on a GPU before the host waits for the results."""
_NEARLY_ALL, _SEVERAL = 0.99, 8
"""Part and number of wrong values beyond a missing tail."""
_PIECE = 256 << 20
"""On a GPU, `torch.equal` takes a byte of memory for each compared element."""


def same_as(
    honest: Iterable[Honest],
    snapshots: list[OutputViews],
    values_of: Callable[[model_call.Result], Mapping[str, Value]] = by_path,
) -> frozenset[str] | None:
    """Return the paths of borrowed outputs if all outputs equal the honest answers, in consecutive blocks; else None.

    NaN equals nothing. If the first block differs, as after another order of computation, no further block is computed.
    """
    borrowed: frozenset[str] = frozenset()
    unread: list[torch.Tensor] = []
    looked = False
    starts = dict.fromkeys((snapshot.path for snapshot in snapshots), 0)
    for result, owned in honest:
        borrowed |= owned
        values = values_of(result)
        for path, _, tensor, _ in snapshots:
            value = values[path]
            rows = value.shape[0] if value.dim() else 1
            part = tensor if value.shape == tensor.shape else tensor[starts[path] : starts[path] + rows]
            if part.shape != value.shape or part.dtype != value.dtype:
                return None
            if part.is_cuda:
                unread.append((comparable(part) == comparable(value)).all())
            elif not are_equal(part, value):
                return None
            starts[path] += rows
        if not looked or len(unread) >= _AT_ONCE:
            if not _all_true(unread):
                return None
            looked = True
            unread.clear()
    if not _all_true(unread):
        return None
    compared = all(starts[path] == (tensor.shape[0] if tensor.dim() else 1) for path, _, tensor, _ in snapshots)
    return borrowed if compared else None


def follows(
    honest: Iterable[Honest], view: OutputViews, values_of: Callable[[model_call.Result], Mapping[str, Value]] = by_path
) -> bool:
    """Return whether an output has the bits of the honest answer, and two of its elements differ.

    Only the operations of the reference, in its order, give these bits; a constant may be guessed.
    """
    values = comparable(view.tensor).flatten()
    varies = values.numel() > 0 and bool((values != values[0]).any())
    return varies and same_as(honest, [view], values_of) is not None


def outlined(result: model_call.Result | None) -> dict[str, torch.Tensor]:
    """Return the tensors of an answer by path."""
    values_by_path = {} if result is None else by_path(result)
    return {path: value for path, value in values_by_path.items() if isinstance(value, torch.Tensor)}


def _all_true(flags: list[torch.Tensor]) -> bool:
    return not flags or bool(flags[0] if len(flags) == 1 else torch.stack(flags).all())


def late(snapshots: list[OutputViews], samples: dict[str, OutputSample]) -> Finding | None:
    """Return a finding if sampled values of an output changed after the clock stopped."""
    for path, _, tensor, _ in snapshots:
        if (sample := samples.get(path)) is None:
            continue
        now = _elements(tensor, sample.positions)
        if not torch.equal(now, sample.content):
            changed = int((now != sample.content).any(1).sum())
            message = f"{path}: {changed} of {len(now)} sampled values changed after the call ended"
            return finding(Code.LATE_OUTPUT, message, path=path)
    return None


def _elements(tensor: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Return the bytes (n, item size) at flat `positions` (n), of any dtype and any number of dimensions.

    Elements are read by position in memory: on a GPU, PyTorch's indexing supports neither all dtypes nor more than 25
    indices.
    """
    if tensor.is_contiguous():
        return _in_order(tensor)[:, None].view(torch.uint8)[positions]
    places = torch.zeros_like(positions)
    for index, step in zip(unravelled(positions, tensor.shape), tensor.stride(), strict=True):
        places += index * step
    span = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.as_strided((span, 1), (1, 1)).view(torch.uint8)[places]


def _in_order(tensor: torch.Tensor) -> torch.Tensor:
    """Return the elements of a contiguous tensor as a vector.

    `view` may keep the stride of a dimension of one element, which is any number, and bytes need a stride of 1.
    """
    return tensor.as_strided((tensor.numel(),), (1,))


def late_on_host(pairs: list[AnswerPair], memory_samples: MemorySamples) -> Finding | None:
    """Return a finding if sampled words of a verified output changed after the runner reported the end of the call."""
    for path, then, now in memory_samples.within(memory_samples.at_done, pairs, frozenset()):
        changed = int((then != now).sum())
        if changed:
            message = f"{path}: {changed} of {len(now)} sampled words changed after the runner reported the call's end"
            return finding(Code.LATE_OUTPUT, message, path=path)
    return None


def wrong_values(check: TensorCheck) -> Finding | None:
    """Return a finding for a failed comparison; None if passed."""
    if check.ok:
        return None
    first = check.first_mismatch
    first_text = f", first at {first.index}: expected {first.expected}, got {first.actual}" if first is not None else ""
    code = Code.NOT_FINITE if check.nonfinite else Code.WRONG_VALUES
    total = torch.Size(check.shape).numel()
    message = f"{check.path}: {check.mismatches} of {total} values differ{first_text}"
    is_nearly_all = code is Code.WRONG_VALUES and check.mismatches >= max(_NEARLY_ALL * total, _SEVERAL)
    return finding(code, message, next_step=NEARLY_ALL if is_nearly_all else None, path=check.path)


def reused(
    snapshots: list[OutputViews], before: Mapping[str, tuple[int, int]], exempt: frozenset[str]
) -> tuple[Finding | None, dict[str, tuple[int, int]]]:
    """Return a finding for an output that overlaps the previous call's, and the current places.

    `before` holds the places of the previous outputs, which the runner still held. Outputs at `exempt` paths may
    overlap.
    """
    now = {
        path: storage
        for path, _, tensor, storage in snapshots
        if storage is not None and tensor.numel() and path not in exempt and path.startswith("output")
    }
    for path, (start, size) in now.items():
        for old_path, (old_start, old_size) in before.items():
            if start < old_start + old_size and old_start < start + size:
                message = f"{path} overlaps the memory of the previous call's {old_path}"
                return finding(Code.OUTPUT_REUSED, message), now
    return None, now


def changed_input(placed: LaidOut, exempt: frozenset[int]) -> Finding | None:
    """Return a finding if the submission wrote into an input.

    The reference writes into the inputs that are `exempt` (numbers in a call), and a submission may too. A window has
    the inputs of dozens of calls: on a GPU, the host waits once for several comparisons.
    """
    unread: list[tuple[str, torch.Tensor]] = []
    for path, before, after in _pieces(placed, exempt):
        if before.is_cuda:
            unread.append((path, (before == after).all()))
        elif not are_equal(before, after):
            return _wrote_into(path)
        if len(unread) >= _AT_ONCE:
            if (change := _first_changed(unread)) is not None:
                return change
            unread.clear()
    return _first_changed(unread)


def _pieces(placed: LaidOut, exempt: frozenset[int]) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Yield the contents of the inputs without `exempt`, as written and as they are now, in pieces of equal shape."""
    free = {path for number, (path, *_) in enumerate(placed.pairs) if number in exempt}  # The same in each call.
    for path, original, shared in placed.pairs:
        if path not in free and original.numel():
            pieces = zip(*(torch.split(tensor, _PIECE) for tensor in _contents(original, shared)), strict=True)
            yield from ((path, before, after) for before, after in pieces)


def _first_changed(unread: list[tuple[str, torch.Tensor]]) -> Finding | None:
    """Wait for comparisons, and return a finding for the first input that changed."""
    if _all_true([is_equal for _, is_equal in unread]):
        return None
    return _wrote_into(next(path for path, is_equal in unread if not is_equal))


def _wrote_into(path: str) -> Finding:
    return finding(Code.INPUT_CHANGED, f"the submission wrote into {path}", path=path)


def _contents(*equals: torch.Tensor) -> list[torch.Tensor]:
    """Return the bytes of tensors, to distinguish NaNs and signs of zero; as 8-byte words if all tensors permit."""
    contents = [_in_order(tensor.contiguous()).view(torch.uint8) for tensor in equals]
    are_words = all(content.numel() % 8 == 0 and content.data_ptr() % 8 == 0 for content in contents)
    return [content.view(torch.int64) for content in contents] if are_words else contents


def views(node: Node) -> list[TensorView]:
    """Return the tensors of an answer. A frame limits the nesting of an answer, so the walk is not recursive."""
    tensors: list[TensorView] = []
    todo = [node]
    while todo:
        match todo.pop():
            case TensorView() as view:
                tensors.append(view)
            case Items(items=items) | DictItems(items=items):
                todo += items
            case _:
                pass
    return tensors


def gradient_pairs(expected: dict[str, torch.Tensor | None], done: Done) -> list[AnswerPair] | Finding:
    """Return pairs of an expected gradient and the answer; a finding if a gradient is missing."""
    answers = done.gradients or {}
    pairs = []
    for name, gradient in expected.items():
        if gradient is None:
            continue
        answer = answers.get(name)
        if answer is None:
            return finding(Code.NO_GRADIENT, f"the gradient of {name} is missing", name=name)
        pairs.append(AnswerPair(f"gradient of {name}", gradient, answer))
    return pairs
