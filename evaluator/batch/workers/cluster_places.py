"""Slots on the machines of a Ray cluster, and the factory of their workers, for batches, programs and the service."""

from contextlib import ExitStack
from typing import NamedTuple

from evaluator.batch.workers.worker_handle import Hire, Slot
from evaluator.errors import UsageError
from evaluator.grade_options import GradeOptions


class Places(NamedTuple):
    """Slots of grades, and the factory of their workers; None starts local processes."""

    slots: list[Slot]
    hire: Hire | None


def cluster_places(address: str, options: GradeOptions, jobs: int | None, stack: ExitStack) -> Places:
    """Connect to a cluster until the exit of `stack`, and return the cluster's slots.

    Raises:
        UsageError: Ray is not installed, or an option has no effect on a cluster.
        InfraError: no cluster answers, or the cluster lacks the resources to grade.
    """
    if options.gpu is not None:
        raise UsageError("--gpu has no effect with --ray: Ray assigns the GPUs")
    from evaluator.batch.workers.ray_cluster import RayCluster

    with ExitStack() as opened:
        cluster = opened.enter_context(RayCluster(address))
        places = Places(cluster.slots(options.device, jobs), cluster.hire(options.device))
        stack.enter_context(opened.pop_all())
    return places
