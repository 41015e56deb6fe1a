"""Errors of a matrix product by arithmetic and by number of terms: how far fewer bits are from fp32.

Rows of zero mean times positive columns, as where rows cancel (`evaluator/judge/reference/cancelling_rows.py`). Prints
a Markdown table of root mean squares of the errors against float64, relative to the result's:

    python -m benchmarks.numerics.error_sizes
"""

import functools
from collections.abc import Callable

import torch

from evaluator.judge.numerics.arithmetic_modes import Format, rounded

ROWS, COLUMNS = 32, 64
TERMS = (16, 256, 4096, 16384, 65536, 131072)
SCALE = 1.3711
Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
_THREADS = 128
_ONE_ACCUMULATOR = """
extern "C" __global__ void one_accumulator(const float* a, const float* b, float* out, int terms, int columns) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    float total = 0.0f;
    for (long long k = 0; k < terms; ++k)
        total = __fadd_rn(total, __fmul_rn(a[(long long)blockIdx.y * terms + k], b[k * columns + column]));
    out[(long long)blockIdx.y * columns + column] = total;
}
"""


def one_accumulator(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return the product with one fp32 accumulator for each element, rounded after each product and each addition."""
    if a.is_cuda:  # PyTorch would launch two kernels for each term.
        (rows, terms), columns = a.shape, b.shape[1]
        out = torch.empty(rows, columns, device=a.device)
        grid = (-(-columns // _THREADS), rows, 1)
        _one_accumulator_kernel()(grid, (_THREADS, 1, 1), (a.contiguous(), b.contiguous(), out, terms, columns))
        return out
    total = torch.zeros(a.shape[0], b.shape[1], device=a.device)
    for k in range(a.shape[1]):
        total += a[:, k : k + 1] * b[k : k + 1]
    return total


@functools.cache
def _one_accumulator_kernel() -> Callable[..., None]:
    return torch.cuda._compile_kernel(_ONE_ACCUMULATOR, "one_accumulator")  # noqa: SLF001


def with_operands(to: Format) -> Product:
    """Return a product of rounded operands."""
    return lambda a, b: rounded(a, to) @ rounded(b, to)


def scaled(to: Format) -> Product:
    """Return a product of operands that are scaled before they are rounded."""
    return lambda a, b: rounded(a * SCALE, to) @ rounded(b * SCALE, to) / SCALE**2


def at_random(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Round operands to TF32, up or down at random, without a bias."""

    def drawn(x: torch.Tensor) -> torch.Tensor:
        bits = x.contiguous().view(torch.int32)
        noise = torch.randint(0, 0x2000, bits.shape, dtype=torch.int32, device=x.device)
        return ((bits + noise) & ~0x1FFF).view(torch.float32)

    return drawn(a) @ drawn(b)


def parts(x: torch.Tensor, to: Format) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the rounded value, and the rounded rest."""
    high = rounded(x, to)
    return high, rounded(x - high, to)


def two_products(to: Format) -> Product:
    """Return a product with one operand in two parts."""

    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        (high, low), b_high = parts(a, to), rounded(b, to)
        return high @ b_high + low @ b_high

    return product


def three_products(to: Format) -> Product:
    """Return a product with both operands in two parts, without the product of the rests."""

    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        (high, low), (b_high, b_low) = parts(a, to), parts(b, to)
        return high @ b_high + (low @ b_high + high @ b_low)

    return product


def in_eight_bits(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return the product of integers from -127 to 127, with a scale for each row and each column."""

    def quantised(x: torch.Tensor, dim: int) -> torch.Tensor:
        step = x.abs().amax(dim, keepdim=True) / 127
        return (x / step).round() * step

    return quantised(a, 1) @ quantised(b, 0)


ARITHMETIC: dict[str, Product] = {
    "fp32, PyTorch's blocks": torch.matmul,
    "fp32, one accumulator": one_accumulator,
    "TF32": with_operands(Format.TF32),
    "TF32, cut off": with_operands(Format.TF32_CUT),
    "TF32, scaled operands": scaled(Format.TF32),
    "TF32, rounded at random": at_random,
    "fp16": with_operands(Format.FP16),
    "fp16, two products": two_products(Format.FP16),
    "fp16, three products": three_products(Format.FP16),
    "bf16": with_operands(Format.BF16),
    "bf16, two products": two_products(Format.BF16),
    "bf16, three products": three_products(Format.BF16),
    "8 bits, one scale for each row": in_eight_bits,
}


def main() -> None:
    """Print the table."""
    torch.manual_seed(0)
    print("| arithmetic | " + " | ".join(f"{terms} terms" for terms in TERMS) + " |")
    print("|---|" + "---|" * len(TERMS))
    operands = [(torch.randn(ROWS, terms), torch.rand(terms, COLUMNS)) for terms in TERMS]
    for name, product in ARITHMETIC.items():
        errors = []
        for a, b in operands:
            exact = a.double() @ b.double()
            errors.append(float((product(a, b) - exact).square().mean().sqrt() / exact.square().mean().sqrt()))
        print(f"| {name} | " + " | ".join(f"{error:.1e}" for error in errors) + " |")


if __name__ == "__main__":
    main()
