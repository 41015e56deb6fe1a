"""Cost of a forward pass, counted instead of timed: equal on idle and on busy machines."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from evaluator.protocol.operations import OperationMode, computes, flop_of, moved_bytes_of, operation_name


class _Rates(NamedTuple):
    flop_per_s: float
    bytes_per_s: float
    operation_s: float


_RATES = {
    "cpu": _Rates(flop_per_s=5e10, bytes_per_s=5e9, operation_s=5e-6),
    "cuda": _Rates(flop_per_s=2e13, bytes_per_s=2e12, operation_s=1e-5),
}
"""A slow machine of each type: two cores of a server, and a third of an H200. Only orders of magnitude matter."""


class Cost(NamedTuple):
    """Work of a forward pass.

    `flop` counts matrix products, convolutions and attention: a multiplication and an addition are two. `moved_bytes`
    counts the bytes of the tensors that each operation takes and returns.
    """

    flop: int
    moved_bytes: int
    operations: int

    def nominal_s(self, device: str) -> float:
        """Return the time on a nominal machine of a device type, in seconds: a property of the problem."""
        rates = _RATES[device]
        return self.flop / rates.flop_per_s + self.moved_bytes / rates.bytes_per_s + self.operations * rates.operation_s


def cost_of(forward: Callable[[], object]) -> Cost:
    """Return the cost of the PyTorch operations in `forward`, which runs once."""
    traffic = TrafficCounter()
    with traffic:
        forward()
    return traffic.cost


class TrafficCounter(OperationMode):
    """Dispatch mode that counts FLOP, operations, and the bytes of arguments and results. A view moves nothing.

    With `computing`, copies and other operations without arithmetic do not count.
    """

    def __init__(self, *, computing: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._computing = computing
        self.names: set[str] = set()
        self.flop = 0
        self.operations = 0
        self.moved_bytes = 0

    @property
    def cost(self) -> Cost:
        """Cost of the operations so far."""
        return Cost(self.flop, self.moved_bytes, self.operations)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        operation: Callable[..., Any] = func
        result = operation(*args, **(kwargs or {}))
        if self._computing and not computes(func):
            return result
        self.names.add(operation_name(func))
        self.flop += flop_of(func, args, kwargs or {}, result)
        self.operations += 1
        if not getattr(func, "is_view", False):
            self.moved_bytes += moved_bytes_of(args, kwargs, result)
        return result
