"""A Ray cluster without Ray: two machines, each with one actor, which returns a card at once.

A submission with the text `power cut` ends a machine with the first attempt, `all power cuts` with every attempt. A
submission with the text `both machines` waits for another on the other machine.
"""

import threading
from unittest import mock

from msgspec.structs import replace

from evaluator.batch.workers import ray_cluster
from evaluator.batch.workers.messages import GradeFinished, NotGraded
from evaluator.batch.workers.worker_handle import NoWorker, Slot
from evaluator.errors import InfraError
from evaluator.records import Status
from tests import cards

ADDRESS = "head:6379"


class FakeCluster:
    """The interface of `RayCluster`."""

    entered = 0
    lost = 0
    graded = 0
    actors = 0

    def __init__(self, address):
        self.address = address

    def __enter__(self):
        if self.address != ADDRESS:
            raise InfraError(f"no Ray cluster answers at {self.address}")
        type(self).entered += 1
        type(self).lost = type(self).graded = type(self).actors = 0
        return self

    def __exit__(self, *_):
        type(self).entered -= 1

    def slots(self, _device, jobs):
        if jobs == 99:
            raise InfraError("the Ray cluster has no CPUs")
        return [Slot(), Slot()]

    def hire(self, _device):
        return lambda _slot, _log: FakeActor()


class FakeActor:
    """The interface of `ActorHandle`, on one of the two machines."""

    changing = threading.Lock()
    both = threading.Barrier(2, timeout=60)

    def __init__(self):
        with self.changing:
            if FakeCluster.actors + FakeCluster.lost >= 2:
                raise NoWorker("no machine has a free slot")
            FakeCluster.actors += 1

    def grade(self, order, on_stage):
        source = order.submission.source
        if "both machines" in source:
            self.both.wait()
        with self.changing:
            FakeCluster.graded += 1
            if "all power cuts" in source or ("power cut" in source and not FakeCluster.lost):
                FakeCluster.lost += 1
                return NotGraded(reason="the machine that made the grade was lost", again=True)
        made = cards.card(status=Status.CORRECT)
        named = replace(made.submission, name=order.submission.name, source=source)
        return GradeFinished(card=replace(made, submission=named))

    def prepare(self, _):
        """Do nothing: the machine has everything at hand."""
        return True

    def interrupt(self):
        """End nothing."""

    def wait(self):
        """Wait for nothing."""

    def close(self):
        with self.changing:
            FakeCluster.actors -= 1


def installed():
    """Replace Ray's cluster until the exit of the context."""
    return mock.patch.object(ray_cluster, "RayCluster", FakeCluster)


if __name__ == "__main__":
    from evaluator.commands.main import main

    with installed():
        main()
