"""Refusal of answers without a value, in outputs whose tolerance has room for steps.

Where other orders move a few elements by a step, the tolerance of all elements is a step wide, and a limited number of
elements may use the width (`compare.tolerance.Bounds.rare`). A mask of maxima has few elements other than 0: zeros
would pass. An honest kernel is a step off in few elements of each value. Where the plain reference itself is a step off
in all elements of a value, as on a lattice of inputs, its own values count.
"""

import msgspec
import torch

from evaluator.devices.out_of_memory import out_of_memory
from evaluator.judge.compare.tensor_comparison import Reading, Sides
from evaluator.judge.compare.tolerance import Bounds
from evaluator.judge.ties.seen_elements import Seen
from evaluator.records import Mismatch, TensorCheck, number_text


def with_all_values(reading: Reading, sides: Sides, limit: Bounds) -> TensorCheck:
    """Return a comparison by `limit`, as wrong if the answer lacks a value of both references."""
    check = reading()
    largest = (check.error_ratio or 0.0) * (check.tolerance or 0.0)
    if not check.ok or largest <= limit.floor or sides.honest.is_complex():
        return check
    try:
        with out_of_memory():
            return _checked(check, sides, limit)
    except MemoryError:  # A submission may hold the memory of its GPU.
        return _checked(check, Sides(*(side.cpu() for side in sides)), limit)


def _checked(check: TensorCheck, sides: Sides, limit: Bounds) -> TensorCheck:
    actual, exact = sides.actual, sides.exact.to(sides.honest.dtype)
    nearer = torch.where((actual - sides.honest).abs() < (actual - exact).abs(), sides.honest, exact)
    seen = Seen(Sides(actual, nearer.double(), nearer), limit._replace(rare=0.0))
    if not seen.lacks_a_value:
        return check
    index = [int(place) for place in torch.unravel_index(torch.tensor(seen.first_place), exact.shape)]
    first = Mismatch(index, *(number_text(side[tuple(index)].item()) for side in (exact, actual)))
    return msgspec.structs.replace(check, ok=False, mismatches=seen.unexplained, first_mismatch=first)
