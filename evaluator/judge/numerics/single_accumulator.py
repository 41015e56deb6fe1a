"""Rounding of a sum in a single fp32 accumulator: the least accurate order that careful authors use.

Sums over at most 2**26 elements are really computed term by term. Products and convolutions would take too long: a
model draws the rounding. Let S be the sum of n products, and Q the sum of their squares. In random order, the partial
sum after k terms is about k/n S, with the variance k (1 - k/n) Q/n of a random walk that ends in S. Each addition
rounds by a value with the standard deviation c |partial sum|, c = 0.204 x 2**-23: the last place is 2**-23 of the
binade, a uniform error has a standard deviation of 1/sqrt(12) of the range, and the mean square of binade over value is
1/2. Summed over k, and with a rounding for each product:

    variance = c**2 (n S**2 / 3 + n Q / 6 + Q)

With m accumulators of n / m terms each, S**2 is divided by m, and n by m.

On products of normal numbers, computed errors had 0.92 to 1.07 times the standard deviation of the model for n of 64 to
131072. For equal terms, and for positive terms below half a unit of the sum, the model is too small: the sums are
computed.
"""

import functools
import math

import numpy as np
import torch

_ROUNDING = 0.204 * 2.0**-23
_LAST = -1
MOST_ELEMENTS = 1 << 26
"""Elements of larger tensors are not added or multiplied singly."""
_BLOCK = 1 << 22
"""Elements added up together, but at least `_LEAST_ROWS` rows: larger blocks leave the CPU's cache, and each step of
fewer rows takes as long."""
_LEAST_ROWS = 64
_GPU_BLOCK = 1 << 25
"""The same on a GPU, where two copies of a block are in memory."""
_NOTHING = np.float32(-0.0)
"""The only start of a sum that changes no first term: 0.0 would make -0.0 positive."""
LONGEST = 1 << 20
"""Terms in one accumulator, at most: published kernels add 577,600 (KernelBench's 2-65), and 524,288 products in a loop
of a single thread (level 1, 6). The rounding of both is drawn from the model above, of a random order."""
_ADDED_UP = 1 << 17
"""Terms really added up in a single accumulator, at most. In a fixed order, longer sums of skewed positive terms have a
bias that no tolerance may allow: 4.7e-4 of the sum for the squares of 2**20 normal values."""
_OBSERVED = ((_ADDED_UP, 2), (64, 1 << 16))


def accumulated(terms: torch.Tensor) -> torch.Tensor:
    """Return the sums of fp32 `terms` along the last dimension, each added up with the largest term first.

    Where a few terms are far larger than the rest, the rounding depends on their position. The largest term in front
    makes all partial sums large, and the error hardly depends on the draw.

    >>> accumulated(torch.tensor([1.0, 1.0, 2.0**24])).item() == 2.0**24
    True
    """
    if terms.shape[_LAST] == 0:
        return terms.sum(_LAST)
    if terms.shape[_LAST] > _ADDED_UP:
        parts = [accumulated(part) for part in torch.split(terms, _ADDED_UP, _LAST)]
        return torch.stack(parts, _LAST).sum(_LAST)
    largest = terms.abs().argmax(_LAST, keepdim=True)
    ordered = terms.scatter(_LAST, largest, terms[..., :1])
    ordered[..., :1] = terms.gather(_LAST, largest)
    return _in_turn(ordered.reshape(-1, terms.shape[_LAST])).reshape(terms.shape[:_LAST])


def _in_turn(rows: torch.Tensor) -> torch.Tensor:
    """Return the sum of each row of a matrix, added up from first to last.

    NumPy adds up in turn along the slow axis in memory, many rows at once, and in pairs along the fast axis.
    """
    if rows.is_cuda and len(rows) and not torch.are_deterministic_algorithms_enabled() and adds_in_turn(rows.device):
        return _on_gpu(rows.detach())
    terms = rows.shape[1]
    totals = np.empty(len(rows), dtype=np.float32)
    step = max(_BLOCK // terms, _LEAST_ROWS)
    for start in range(0, len(rows), step):
        block = rows[start : start + step].detach().t().contiguous().cpu().numpy()
        with np.errstate(all="ignore"):  # PyTorch overflows silently.
            alone = block.shape[1] == 1  # Then the only axis of several elements is the fast axis.
            totals[start : start + step] = (
                np.add.accumulate(block, dtype=np.float32)[-1]
                if alone
                else np.add.reduce(block, axis=0, dtype=np.float32, initial=_NOTHING)
            )
    return torch.from_numpy(totals).to(rows.device)


def _on_gpu(rows: torch.Tensor) -> torch.Tensor:
    """Return the sum of each row of a matrix on a GPU, added up from first to last.

    PyTorch's running sums along a slow axis have the order (`adds_in_turn`), except with a single row. A sum of
    negative zeros is 0.0. A problem that requires deterministic algorithms has no running sums on a GPU.
    """
    step = max(_GPU_BLOCK // rows.shape[1], _LEAST_ROWS)
    totals = []
    for some in torch.split(rows, step):
        columns = some.t() if len(some) > 1 else some.t().expand(-1, 2)
        totals.append(columns.contiguous().cumsum(0)[-1][: len(some)].clone())
    return torch.cat(totals)


@functools.cache
def adds_in_turn(device: torch.device) -> bool:
    """Return whether running sums of long and of many columns have one accumulator each on a GPU: an observation.

    Each small term vanishes beside the first term, unless small terms are added to each other before.
    """

    def holds(terms: int, columns: int) -> bool:
        some = torch.ones((terms, columns), dtype=torch.float32, device=device)
        some[0] = 2.0**24
        return bool((some.cumsum(0) == 2.0**24).all())

    return all(holds(*shape) for shape in _OBSERVED)


def running(terms: torch.Tensor, operation: np.ufunc = np.add) -> torch.Tensor:
    """Return the running sums, or with `np.multiply` the products, of fp32 `terms` along the last dimension.

    NumPy goes from first to last in the given dtype. PyTorch's `cumsum` uses float64 on a CPU, and blocks along the
    fast axis on a GPU.
    """
    with np.errstate(all="ignore"):  # PyTorch overflows silently.
        totals = operation.accumulate(terms.detach().cpu().numpy(), axis=_LAST, dtype=np.float32)
    return torch.from_numpy(np.ascontiguousarray(totals)).to(terms.device)


def rounding(total: torch.Tensor, squares: torch.Tensor, terms: int, generator: torch.Generator) -> torch.Tensor:
    """Draw the rounding of sums of `terms` products: `total` are the sums, `squares` the sums of squared products."""
    accumulators = max(terms / LONGEST, 1)
    steps = terms / accumulators
    variance = steps / accumulators * total.double().square() / 3 + (steps / 6 + 1) * squares.double()
    scale = (_ROUNDING * variance.sqrt()).nan_to_num(0.0, 0.0)  # an infinite sum has no rounding
    noise = torch.randn(total.shape, generator=generator, device=total.device, dtype=torch.float64)
    return (noise * scale).to(total.dtype)


def products_in_sum(weight: torch.Tensor, *, transposed: bool, groups: int) -> int:
    """Return the number of products in an element of a convolution, at most."""
    channels = weight.shape[0] // groups if transposed else weight.shape[1]
    return channels * math.prod(weight.shape[2:])
