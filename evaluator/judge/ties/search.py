"""Search for ties, where roundings of the reference itself decide about an element.

A comparison, a rounding to whole numbers or an argmax makes a step of a rounding error. Grey values of RGB with fused
multiply-adds are a code off in 1 to 3 of 524,288 pixels; a split sum changes the sign of a random projection in a
million (measured in fp32). An honest kernel is a step off only where the exact value is as near to a tie as a rounding
is large.

These elements are found by trial: the reference runs again with other roundings and other orders of summation, each
exaggerated by the tolerance's factor for errors of other orders (`exaggerated`). An element passes with a value of one
of these runs, in fp32 within its tolerance. Inputs and exact results stay: an argmax of an input returns the first of
equal elements, as in PyTorch.

Distances to ties must be continuous: then four times the rounding changes four times as many elements. On a lattice of
inputs a whole class of elements lies on a tie, and any rounding changes all of it; another operator, such as > for >=,
would pass there. Such ties have no search, nor has a reference whose buffers change: its runs differ by more than
roundings.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterator

import msgspec
import torch

from evaluator.devices.out_of_memory import out_of_memory
from evaluator.errors import ProblemError
from evaluator.judge.compare.tensor_comparison import Limit, Sides, rows_from
from evaluator.judge.compare.tolerance import ARITHMETIC, Bounds, bounds
from evaluator.judge.formats.elements import are_equal
from evaluator.judge.numerics.arithmetic_modes import Format, Order, in_order, with_operands
from evaluator.judge.reference.call_plan import CallPlan
from evaluator.judge.reference.operation_cost import cost_of
from evaluator.judge.reference.reference import Expected, Reference
from evaluator.judge.tensors.call_arguments import Arguments
from evaluator.judge.tensors.output_views import OutputViews
from evaluator.judge.ties.exaggerated import exaggerated
from evaluator.judge.ties.seen_elements import Seen
from evaluator.records import Precision, Problem, Profile, TensorCheck, ToleranceRule

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
"""Dtypes of numbers at ties. Only outputs may have half precision: operations on fp32 decide about ties."""
_MOST_PART = 16
"""Answers with more wrong elements, as a part of all (1/16), are not searched for ties."""
_DRAWS = 16
_DIRECTIONS = (1, -1)
"""Draws of each order, each in both directions: where two roundings lead to a quotient, half of the draws move it away
from a step or nowhere, and the opposite direction makes up for the first. If a kernel's rounding is normal, and
exaggerated roundings are 4 times as large, a tie crossed by the kernel is crossed by none of 16 draws of two orders, in
one direction each, with a probability of 1.7e-6 (computed by integration)."""
_LONGEST_S = 60.0
"""Time limit of a search on a nominal machine. Answers of references too slow for a single draw are not searched."""
_FORWARDS = 8
"""Nominal forwards of a run, in the mean of the orders: measured 2 for a product, 7 for grey values (two cores)."""
_OPERATION_S = 1.5e-4
"""Time of the Python code around an operation of a run: measured 1.3e-4 s for small tensors (two cores)."""
_FEW = 8
"""A search ends after a draw if wrong elements need 8 steps more than runs have changed: exaggerated roundings change
more than an honest kernel does."""
_REACH = 8
_FAR_DRAWS = 2
"""A reference without steps near its values keeps its fp32 outputs within their tolerance in two draws of each order,
with 8 times the exaggeration of a search: 32 ulp are 4e-6, and the smallest tolerance is 1e-5. Each draw runs in both
directions: the quotient of a small tensor may be the only element near a step, and one direction leads away from it."""
_MOST_OF_DECIDED = 2
_FEW_AT_TIES = 4
"""An honest kernel is off in a fourth of the elements that exaggerated roundings change. A kernel without a threshold
is off in all: more than half of these elements, and 4, are too many."""
_BY_CHANCE = 12
"""So many elements more than half may change without exaggeration: of 960 honest calls, 2 had 10 and 11 more."""
_FARTHER = 32
_MORE = 2
"""Where a row or a column is wrong, roundings 32 times as exaggerated must change more than twice as many. A class of
rows on a lattice of inputs stays the same: 128 ulp are 1.5e-5 of a number."""
_ORDERS: tuple[Order, ...] = (Order.ROUNDED, Order.SEQUENTIAL)
_Run = tuple[Order, int, int]
_ONCE = (Order.SEQUENTIAL, Order.NAIVE)
"""Arithmetic without exaggeration: sums added up in turn, whose bias no model has, and textbook formulas."""


def within_ties(
    plan: CallPlan, checks: list[TensorCheck], views: list[OutputViews], limits: Callable[[str, torch.Tensor], Limit]
) -> list[TensorCheck]:
    """Return the comparisons of a call, with `ok` for outputs explained by other roundings of the reference.

    Nothing changes if another output is wrong. The reference must wear the weights of the call. `limits` returns the
    limit of an output, by its path.
    """
    answers = {view.path: view.tensor for view in views}
    wrong = [check for check in checks if not check.ok]
    outputs = {check.path: _Output(answers[check.path], limits(check.path, answers[check.path])) for check in wrong}
    if not all(_may_be_tied(check, outputs[check.path]) for check in wrong):
        return checks
    try:
        with out_of_memory(), _unchanged_buffers(plan.reference) as are_unchanged:
            draws = _draws(plan)
            if not are_unchanged():
                return checks
            blocks = zip(plan.blocks, plan.expected(), strict=True)
            explained = all(_explained(plan, block, expected, outputs, draws) for block, expected in blocks)
            explained &= are_unchanged()
    except MemoryError:
        return checks
    # Other elements than those of the comparison are wrong where the number of far errors failed.
    explained &= all(outputs[check.path].wrong == check.mismatches for check in wrong)
    return [_at_ties(check) if check.path in outputs else check for check in checks] if explained else checks


def _may_be_tied(check: TensorCheck, output: "_Output") -> bool:
    """Return whether few elements are wrong, of integers without a tolerance or of finite numbers."""
    answer, limit = output.answer, output.limit
    are_numbers = isinstance(limit, Bounds) and answer.dtype in _DTYPES and not check.nonfinite
    return (limit is None or are_numbers) and check.mismatches * _MOST_PART <= answer.numel()


def _at_ties(check: TensorCheck) -> TensorCheck:
    """Return the comparison as correct. The largest error is an allowed error of other roundings: ratio 1."""
    return msgspec.structs.replace(check, ok=True, error_ratio=1.0, mismatches=0, first_mismatch=None)


@contextlib.contextmanager
def _unchanged_buffers(reference: Reference) -> Iterator[Callable[[], bool]]:
    """Context that restores the reference's buffers, and gives a function: whether no run has changed a buffer."""
    buffers = dict(reference.model.named_buffers())
    before = {name: buffer.detach().clone() for name, buffer in buffers.items()}
    try:
        yield lambda: all(are_equal(buffer, before[name]) for name, buffer in buffers.items())
    finally:
        for name, buffer in buffers.items():
            buffer.detach().copy_(before[name])


class _Output:
    """An answer's tensor and limit, the first row of the current block, and the number of wrong elements so far."""

    def __init__(self, answer: torch.Tensor, limit: Limit) -> None:
        self.answer = answer
        self.limit = limit
        self.start = 0
        self.wrong = 0


def _explained(plan: CallPlan, block: Arguments, expected: Expected, outputs: dict[str, _Output], draws: int) -> bool:
    """Return whether other roundings of the reference explain all wrong elements in a block."""
    exact, honest = plan.reference.values(expected.exact), plan.reference.values(expected.honest)
    seen: dict[str, Seen] = {}
    for path, output in outputs.items():
        sides = rows_from(Sides(output.answer, exact[path], honest[path]), output.start)
        limit = output.limit if isinstance(output.limit, Bounds) else None
        seen[path] = Seen(sides, limit, constant_rows=plan.profile is Profile.CONSTANT_ROWS)
        output.wrong += seen[path].unexplained
        output.start += sides.honest.shape[0] if sides.honest.dim() else 0
    if not any(each.unexplained for each in seen.values()):
        return True
    if any(each.lacks_a_value for each in seen.values()):
        return False
    if not (draws and _have_steps(plan, block, seen)):
        return False
    for mode in _once(plan.reference.problem):
        _run(plan, block, mode, seen, counts=False)
    wrong = {path: each.steps_off for path, each in seen.items()}
    made = _run_until_explained(plan, block, seen, draws)
    if made is None or any(_are_too_many(wrong[path], each.decided) for path, each in seen.items()):
        return False
    return _are_continuous(plan, block, seen, made)


def _are_too_many(wrong: int, decided: int) -> bool:
    """Return whether roundings cannot explain so many `wrong` elements, of those that exaggerated roundings change."""
    return (wrong - _FEW_AT_TIES) * _MOST_OF_DECIDED > decided


def _have_steps(plan: CallPlan, block: Arguments, seen: dict[str, Seen]) -> bool:
    """Return whether far larger roundings move each wrong output with a tolerance beyond it; integers need no steps."""
    numbers = {path: each for path, each in seen.items() if each.has_tolerance and each.unexplained}
    for draw, order, direction in itertools.product(range(_FAR_DRAWS), _ORDERS, _DIRECTIONS):
        if all(each.decided for each in numbers.values()):
            break
        mode = exaggerated(order, direction * _REACH * _factor(plan.reference.problem), draw)
        _run(plan, block, mode, numbers, explains=False)
    have_steps = all(each.decided for each in numbers.values())
    for each in numbers.values():
        each.count_anew()
    return have_steps


def _run_until_explained(plan: CallPlan, block: Arguments, seen: dict[str, Seen], draws: int) -> list[_Run] | None:
    """Run the reference until all wrong elements are explained, and return the runs: order, draw and direction."""
    made: list[_Run] = []
    for draw in range(draws):
        for run, mode in _modes(plan.reference.problem, draw):
            if not any(each.unexplained for each in seen.values()):
                return made
            _run(plan, block, mode, seen)
            made.append(run)
        if any(each.steps_off > each.decided + _FEW for each in seen.values()):
            return None
    return None if any(each.unexplained for each in seen.values()) else made


def _are_continuous(plan: CallPlan, block: Arguments, seen: dict[str, Seen], made: list[_Run]) -> bool:
    """Return whether the runs `made` change more than twice as many elements as the same runs without exaggeration."""
    decided = {path: each.decided for path, each in seen.items()}
    for each in seen.values():
        each.count_anew()
    for order, draw, direction in made:
        _run(plan, block, exaggerated(order, direction, draw), seen)
    changed = {path: each.decided for path, each in seen.items()}
    are_few = all(2 * changed[path] <= decided[path] + _BY_CHANCE for path in seen)
    return are_few and _are_some_of_many(plan, block, {path: each for path, each in seen.items() if each.has_lines})


def _are_some_of_many(plan: CallPlan, block: Arguments, seen: dict[str, Seen]) -> bool:
    """Return whether far larger roundings change many more rows or columns than roundings without exaggeration."""
    least = {path: _MORE * (each.changed_lines + 1) for path, each in seen.items()}
    for draw, order, direction in itertools.product(range(_FAR_DRAWS), _ORDERS, _DIRECTIONS):
        if all(each.changed_lines >= least[path] for path, each in seen.items()):
            return True
        mode = exaggerated(order, direction * _FARTHER * _factor(plan.reference.problem), draw)
        _run(plan, block, mode, seen, explains=False)
    return all(each.changed_lines >= least[path] for path, each in seen.items())


def _draws(plan: CallPlan) -> int:
    """Return the number of draws of each order in every block; 0 for a reference too slow to search."""
    reference, block = plan.reference, plan.blocks[0]
    cost = cost_of(lambda: reference.forward(block, plan.random_seed))
    run_s = _FORWARDS * cost.nominal_s(reference.device.type) + _OPERATION_S * cost.operations
    return min(int(_LONGEST_S / (len(_ORDERS) * len(_DIRECTIONS) * len(plan.blocks) * run_s)), _DRAWS)


def _factor(problem: Problem) -> float:
    """Return the tolerance's factor for errors of other orders."""
    return bounds(ToleranceRule.MEASURED, problem, ARITHMETIC[problem.precision]).multiple


def _modes(problem: Problem, draw: int) -> Iterator[tuple[_Run, contextlib.AbstractContextManager[None]]]:
    """Yield the runs of a draw, and their arithmetic."""
    for order, direction in itertools.product(_ORDERS, _DIRECTIONS):
        yield (order, draw, direction), exaggerated(order, direction * _factor(problem), draw)


def _once(problem: Problem) -> Iterator[contextlib.AbstractContextManager[None]]:
    """Yield arithmetic without exaggeration and random numbers."""
    yield from (in_order(order) for order in _ONCE)
    if problem.precision is Precision.TF32:
        yield from (with_operands(to) for to in (Format.TF32, Format.TF32_CUT))


def _run(
    plan: CallPlan,
    block: Arguments,
    mode: contextlib.AbstractContextManager[None],
    seen: dict[str, Seen],
    *,
    counts: bool = True,
    explains: bool = True,
) -> None:
    """Run the reference in `mode`, and add the values of its outputs."""
    reference = plan.reference
    try:
        found = reference.values(reference.altered(block, plan.random_seed, plan.gradients, mode))
    except ProblemError:  # An operation without support for the mode is no fault of the problem.
        return
    for path, each in seen.items():
        values = found.get(path)
        if isinstance(values, torch.Tensor):
            each.add(values, counts=counts, explains=explains)
