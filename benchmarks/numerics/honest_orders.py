"""Errors of honest ways to compute a function, relative to a row's root mean square: PyTorch, each `SummationOrder`.

python -m benchmarks.numerics.honest_orders
"""

from collections.abc import Callable

import torch
from torch.nn import functional

from evaluator.judge.numerics.arithmetic_modes import SummationOrder, in_order


def functions() -> dict[str, tuple[Callable[..., torch.Tensor], list[torch.Tensor]]]:
    """Return the functions with their inputs."""
    drawn = torch.Generator().manual_seed(0)
    rows = torch.randn(16, 16_384, generator=drawn)
    mixed = torch.ldexp(rows, torch.randint(-8, 9, rows.shape, generator=drawn))
    long = [torch.randn(64, 131_072, generator=drawn), torch.randn(131_072, 64, generator=drawn)]
    return {
        "softmax": (lambda x: functional.softmax(x, 1), [rows]),
        "layer norm": (lambda x: functional.layer_norm(x, (16_384,)), [rows]),
        "instance norm": (lambda x: functional.instance_norm(x.view(4, 1, 256, 256)), [rows]),
        "instance norm, mixed magnitudes": (lambda x: functional.instance_norm(x.view(4, 1, 256, 256)), [mixed]),
        "L2 norm": (lambda x: x / x.norm(p=2, dim=1, keepdim=True), [rows]),
        "Frobenius norm": (lambda x: x / x.norm(p="fro"), [rows]),
        "ELU of small values": (lambda x: functional.elu(x * 1e-3), [rows]),
        "product, K = 131072": (torch.matmul, long),
    }


def main() -> None:
    """Print the table."""
    print("| function | PyTorch |", " | ".join(SummationOrder), "|")
    print("|---|---|" + "---|" * len(SummationOrder))
    for name, (function, given) in functions().items():
        exact = function(*(each.double() for each in given))
        size = exact.square().mean(-1, keepdim=True).sqrt()
        found = [function(*given)]
        for order in SummationOrder:
            with in_order(order):
                found.append(function(*given))
        errors = (float(((each.double() - exact).abs() / size).max()) for each in found)
        print(f"| {name} |", " | ".join(f"{error:.1e}" for error in errors), "|")


if __name__ == "__main__":
    main()
