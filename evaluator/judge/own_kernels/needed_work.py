"""Work that the reference needs in a call, against the work of PyTorch's operations in a submission's call."""

from typing import NamedTuple

from evaluator.judge.reference.call_plan import CallPlan
from evaluator.judge.reference.operation_cost import Cost, TrafficCounter
from evaluator.judge.reference.reference import Reference
from evaluator.judge.setup.seed_book import fresh_seed
from evaluator.protocol.frames import Counted
from evaluator.protocol.operations import moved_bytes_of
from evaluator.protocol.pytree import tensors_of

_FEW = 1 / 16
"""A smaller part of the inputs and outputs, for instance a list of lengths, cannot hold the work of a call."""


class NeededWork(NamedTuple):
    """Work of the reference: `cost` of the computing `operations`, and `least_bytes` of inputs and outputs.

    A program with a single operation moves at least `least_bytes`.
    """

    cost: Cost
    least_bytes: int
    operations: frozenset[str] = frozenset()

    def most_share(self, counted: Counted) -> float:
        """Return the upper limit of the share of own kernels: PyTorch's operations did the rest.

        A reference without computing operations, such as a transposition, sets no limit.
        """
        return _own_share(self._library(counted), self.cost) if self.cost.operations else 1.0

    def least_share(self, counted: Counted) -> float:
        """Return the lower limit: an operation that the reference lacks may stand for several operations.

        NVIDIA's libraries and NumPy may have done any part of the work.
        """
        if counted.library_launches or counted.exported_bytes > _FEW * self.least_bytes:
            return 0.0
        if self.operations.issuperset(counted.operations):
            return self.most_share(counted)
        return _own_share(self._library(counted), Cost(self.cost.flop, min(self.least_bytes, self.cost.moved_bytes), 0))

    def _library(self, counted: Counted) -> Cost:
        """Return PyTorch's work. For a reference without products, bytes alone are compared."""
        return Cost(counted.flop if self.cost.flop else 0, counted.moved_bytes, counted.library_calls)


def needed_work(reference: Reference) -> NeededWork:
    """Count the work of one call of the reference on inputs of its own."""
    plan = CallPlan(reference, fresh_seed())
    least_bytes = moved_bytes_of(tensors_of(list(plan.inputs)), plan.gradients)

    with TrafficCounter(computing=True) as traffic:
        for honest in plan.honest():
            least_bytes += moved_bytes_of(tensors_of(honest.result.outputs), honest.result.gradients)
    return NeededWork(traffic.cost, least_bytes, frozenset(traffic.names))


def _own_share(library: Cost, needed: Cost) -> float:
    needed_s = needed._replace(operations=0).nominal_s("cpu")
    library_s = library._replace(operations=0).nominal_s("cpu")
    return 1.0 if not library_s else max(1.0 - library_s / needed_s, 0.0) if needed_s else 0.0
