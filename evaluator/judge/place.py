"""A runner and its shared memory: where a submission, or the reference, is read in, made and called."""

from typing import TYPE_CHECKING, NamedTuple

import torch

from evaluator.catalog import sized_source
from evaluator.devices.memory import SharedMemory
from evaluator.frames import Construct, Constructed, Table
from evaluator.judge.clock import Clock
from evaluator.judge.session import Fault, Session
from evaluator.judge.trees import place
from evaluator.judge.trial import Bench
from evaluator.records import DeviceKind, Mode, Precision, Problem, Tf32

if TYPE_CHECKING:
    from evaluator.judge.workshop import Workshop

IMPORT_TIMEOUT_S = 60.0
"""Reading a submission in, and constructing its model, may take so long; its builds have a limit of their own."""


class Place(NamedTuple):
    """A runner and its shared memory, before and after the submission is in it."""

    shop: "Workshop"
    source: str
    session: Session
    memory: SharedMemory
    clock: Clock
    device: DeviceKind

    def load(self, tf32: Tf32 | None = None) -> Fault | None:
        """Have the submission read in, under `tf32`; the problem's own where it is None."""
        terms = self.shop.terms
        timeout_s = IMPORT_TIMEOUT_S if terms.timeout_s is None else terms.timeout_s
        return self.session.load(
            self.source,
            sized_source(terms.problem, terms.size),
            memory=self.memory,
            device=self.device,
            threads=terms.threads,
            tf32=own_tf32(terms.problem) if tf32 is None else tf32,
            timeout_s=timeout_s,
        )

    def construct(self) -> Constructed | Fault:
        """Have ModelNew made, as the reference was, and given the reference's weights."""
        reference, terms = self.shop.reference, self.shop.terms
        values = [("init", reference.init.args), ("init", reference.init.kwargs), ("state", reference.state())]
        placed = place(list(values), self.memory.inputs)
        placed.write()
        if terms.gpu is not None:
            torch.cuda.synchronize()
        args, kwargs, state = placed.nodes
        if not isinstance(state, Table):
            raise TypeError("a state_dict is a table")
        frame = Construct(
            weight_seed=self.shop.seeds.weight,
            training=terms.problem.mode is Mode.TRAIN,
            args=args,
            kwargs=kwargs,
            state=state,
        )
        timeout_s = IMPORT_TIMEOUT_S if terms.timeout_s is None else terms.timeout_s
        return self.session.construct(frame, timeout_s=timeout_s)

    def bench(self) -> Bench:
        """Set up trials with this runner."""
        shop = self.shop
        rule, outline = shop.terms.tolerance, shop.reference.outline
        return Bench(
            shop.reference,
            self.clock,
            self.memory,
            rule,
            outline,
            shop.rig.compare,
            shop.seeds.mixture,
            first_call_s=shop.deadlines(self.source).first_call_s,
        )


def own_tf32(problem: Problem) -> Tf32:
    """Say what a problem's precision allows the products of both sides."""
    return Tf32.ON if problem.precision is Precision.TF32 else Tf32.OFF
