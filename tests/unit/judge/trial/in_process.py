"""A submission in this process: the runner's own code answers the frames, and the judge's trials check the answers."""

import itertools
from pathlib import Path

from evaluator.devices.memory import HostRegion, SharedMemory
from evaluator.judge.clock.clock import ClockedCall, ClockedSpotCheck
from evaluator.judge.reference.changing_weights import NO_SITES, sites_of
from evaluator.judge.reference.dependence import settle_weights
from evaluator.judge.reference.reference import Reference
from evaluator.judge.tensors.call_arguments import Arguments
from evaluator.judge.tensors.pytree import lay_out
from evaluator.judge.trial.retry import retried
from evaluator.judge.trial.trial_runner import TrialRunner
from evaluator.protocol.frames import Construct, DictItems, Items, Window
from evaluator.protocol.frames.values import ModelMode
from evaluator.records import Problem, SizeName, ToleranceRule
from evaluator.runner.main import Runner
from evaluator.runner.shared_memory import HostArena, Shared
from tests.unit import references

ROOM = 1 << 18


class SameProcess:
    """A clock whose runner is here: the frames are answered by the runner's own code.

    It has spot checks too: the release of a call reveals the inputs and weights of this call alone.
    """

    memory_samples = None
    window_calls = 4
    windows = property(lambda clock: clock)

    def __init__(self, runner, spoil):
        self._runner, self._spoil = runner, spoil
        self.frames, self.limits_s, self.asked_late = [], [], []

    @property
    def model(self):
        return self._runner._model

    @property
    def last_result(self):
        """The outputs and gradients of the last call, which the runner keeps."""
        (held,) = self._runner._held[-1]
        return held

    def answer(self, frame):
        self.frames.append(frame)
        return self._runner._answer(frame)

    def prepare(self, frame, *, timeout_s):
        return self.answer(frame)

    def call(self, frame, write, outline, *, timeout_s, queued_timeout_s, asks_late):
        self.limits_s.append((timeout_s, queued_timeout_s))
        self.asked_late.append(asks_late)
        write()
        return ClockedCall(self._spoil(self.answer(frame)), 1.0)

    def spot_check(self, frames, write, masked, *, timeout_s):
        self._write, self._masked, shared = write, masked, self._runner._memory
        self._runner._memory, self._runner._channel = shared._replace(gate=self), self
        answer = self.answer(Window(calls=frames, masked=masked))
        self._runner._memory = shared
        write()
        return ClockedSpotCheck([ClockedCall(done, 0.0) for done in answer.calls], [1.0] * len(frames), None)

    def unmask(self, ticket, number, masked):
        """Put the values of this call, and of no other, into memory."""
        assert masked is self._masked[number]
        inputs, start, end = self._runner._memory.inputs, masked.offset_bytes, masked.offset_bytes + masked.size_bytes
        inputs.fill_(0xFF)
        self._write()
        inputs[:start] = 0xFF
        inputs[end:] = 0xFF

    def digest(self, number, answer):
        pass

    def leave(self, ticket, places, sampled):
        pass

    def send(self, frame):
        pass


class Trials(TrialRunner):
    """The trials of such a submission, with what they are made of."""

    def __init__(self, reference, clock, memory, rule, **settings):
        super().__init__(reference, clock, memory, rule, **settings)
        self.reference, self.clock, self.inputs = reference, clock, memory.inputs.flat
        self._seeds = itertools.count(70)

    def several(self, count=3, **how):
        return [self.run(index, next(self._seeds), timeout_s=1, **how) for index in range(count)]

    def retried(self, seed, index=0):
        """Make a call that has a wrong answer, and return its trial, with fault and check after the retry."""
        wrong = self.run(index, seed, timeout_s=1)
        return wrong, *retried(self, wrong, index, seed, itertools.repeat(None), 1)

    def in_window(self, seed):
        """Make a call as those of a window are compared, after a first call: its values are no samples."""
        (plan,) = self.plans(1, [seed])
        placed, answer = self.call_driver.ask(1, plan, self.call_driver.wanted, schedule=None, timeout_s=1)
        return self.compared(1, plan, placed, answer)

    def in_blocks(self, monkeypatch, rows):
        """Have the reference computed in blocks of `rows`."""
        monkeypatch.setattr(
            self.reference, "blocks", lambda given: [Arguments([part], {}) for part in given.args[0].split(rows)]
        )


class Maker:
    """Makes trials of a problem and a submission, in memory that all of a test's share."""

    def __init__(self, inputs: HostRegion, outputs: HostRegion, folder: Path) -> None:
        self._inputs, self._outputs, self._folder = inputs, outputs, folder

    def __call__(
        self,
        problem: Problem,
        submission: str,
        *,
        rule=ToleranceRule.MEASURED,
        spoil=lambda done: done,
        changing=False,
        **settings,
    ) -> Trials:
        reference = Reference(problem, SizeName.SMALL, 1)
        once = reference.draw(0)
        reference.settle(once, reference.forward(once, 0))
        if changing:
            settle_weights(reference, once)
        runner = Runner(None, self._folder)
        runner._memory = Shared(self._inputs.flat, HostArena(self._outputs.flat, ROOM), None, None)
        space = {}
        exec(submission, space)
        runner._model_new = space["ModelNew"]
        clock = SameProcess(runner, spoil)
        placed = lay_out([("state", reference.state())], self._inputs)
        placed.write()
        constructed = clock.answer(
            Construct(
                weight_seed=1,
                mode=ModelMode.TRAIN,
                args=Items(is_tuple=False, items=[]),
                kwargs=DictItems(keys=[], items=[]),
                state=placed.nodes[0],
                changing=list(reference.weights.names) if changing else [],
            )
        )
        assert constructed.difference is None
        clock.frames.clear()
        sites = sites_of(reference.parameters(), constructed.weights, self._outputs) if changing else NO_SITES
        memory = SharedMemory(self._inputs, self._outputs, ROOM, None, 2 * ROOM)
        return Trials(reference, clock, memory, rule, sites=sites, **settings)

    def of_expression(
        self, given: str, output: str, answer: str | None = None, *, backward=False, **settings
    ) -> Trials:
        """Make trials of a submission given as forward's expression."""
        text = references.SOURCE.format(init="pass", forward="x", output=answer or output, given="")
        problem = references.problem(output, given, backward=backward)
        return self(problem, text.replace("class Model(", "class ModelNew("), **settings)
