"""Calls with weights of their own, with the runner's own code in this process: the runner copies its weights here."""

import weakref

import pytest
import torch
from msgspec.structs import replace

from evaluator.devices.memory import HostRegion, SharedMemory
from evaluator.findings import Code
from evaluator.findings.comparing import WEIGHT_LEFT_OUT, WEIGHTS_IN_EACH_CALL
from evaluator.judge.answer.answer_judge import AnswerJudge
from evaluator.judge.clock.clock import ClockedCall, ClockedSpotCheck
from evaluator.judge.reference.changing_weights import CallWeights, sites_of
from evaluator.judge.reference.dependence import settle_weights
from evaluator.judge.reference.reference import Reference
from evaluator.judge.setup.distribution_mix import AS_GIVEN_ALONE, DistributionMix
from evaluator.judge.tensors.pytree import lay_out
from evaluator.judge.trial.retry import retried
from evaluator.judge.trial.trial_runner import TrialRunner
from evaluator.judge.trial.windows import WindowRunner
from evaluator.protocol.frames import Construct, DictItems, Items, Window
from evaluator.protocol.frames.values import ModelMode
from evaluator.records import Profile, SizeName, ToleranceRule
from evaluator.runner.main import Runner
from evaluator.runner.shared_memory import HostArena, Shared
from tests.unit.judge.trial.test_trial_runner import ROOM, SameProcess, problem

SUBMISSION = """
import torch
from model import Model

class ModelNew(Model):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x):
        {forward}
        return super().forward(x)
"""
LAYERS = {
    "a linear layer": "torch.nn.Linear(6, 6)",
    "in half precision": "torch.nn.Linear(6, 6).bfloat16()",
    "a batch norm in training": "torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.BatchNorm1d(6))",
    "dropout": "torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Dropout())",
    "a layer used twice": "(lambda one: torch.nn.Sequential(one, one))(torch.nn.Linear(6, 6))",
}


class Released(SameProcess):
    """A clock that has spot checks too. The release of a call reveals the inputs and weights of the call."""

    window_calls = 4
    windows = property(lambda clock: clock)

    def spot_check(self, frames, write, masked, *, timeout_s):
        self._write, self._inputs, self._masked = write, self._runner._memory.inputs, masked
        self._runner._memory = self._runner._memory._replace(gate=self)
        self._runner._channel = self
        answer = self._runner._answer(Window(calls=frames, masked=masked))
        self._runner._memory = self._runner._memory._replace(gate=None)
        write()
        return ClockedSpotCheck([ClockedCall(done, 0.0) for done in answer.calls], [1.0] * len(frames), None)

    def unmask(self, ticket, number, masked):
        """Put the values of this call, and of no other, into memory."""
        assert masked is self._masked[number]
        start, end = masked.offset_bytes, masked.offset_bytes + masked.size_bytes
        self._inputs.fill_(0xFF)
        self._write()
        self._inputs[:start] = 0xFF
        self._inputs[end:] = 0xFF

    def digest(self, number, answer):
        pass

    def leave(self, ticket, places, sampled):
        pass

    def send(self, frame):
        pass


@pytest.fixture
def trial_runner(tmp_path):
    """Make a bench of a reference with one layer, and of a submission that adds to it."""
    with HostRegion(4 * ROOM) as inputs, HostRegion(4 * ROOM) as outputs:

        def make(layer, *, backward=False, init="pass", forward="pass", output="self.layer(x)", mix=AS_GIVEN_ALONE):
            given = "torch.randn(5, 6, dtype=torch.bfloat16)" if "bfloat16" in layer else "torch.randn(5, 6)"
            made = problem(output, given, backward=backward)
            init_of = f"    def __init__(self):\n        super().__init__()\n        self.layer = {layer}\n"
            setup = f"class Model(torch.nn.Module):\n{init_of}"

            made = replace(made, source=made.source.replace("class Model(torch.nn.Module):\n", setup))
            reference = Reference(made, SizeName.FULL, 1)
            once = reference.draw(0)
            reference.settle(once, reference.forward(once, 0))
            settle_weights(reference, once)
            runner = Runner(None, tmp_path)
            runner._memory = Shared(inputs.flat, HostArena(outputs.flat, ROOM), None, None)
            space = {}
            exec(SUBMISSION.format(init=init, forward=forward), space)
            runner._model_new = space["ModelNew"]
            placed = lay_out([("state", reference.state())], inputs)
            placed.write()
            none = Items(is_tuple=False, items=[])
            constructed = runner._answer(
                Construct(
                    weight_seed=1,
                    mode=ModelMode.TRAIN,
                    args=none,
                    kwargs=DictItems(keys=[], items=[]),
                    state=placed.nodes[0],
                    changing=list(reference.weights.names),
                )
            )
            assert constructed.difference is None
            memory = SharedMemory(inputs, outputs, ROOM, None, 2 * ROOM)
            sites = sites_of(reference.parameters(), constructed.weights, outputs)
            assert sites.change
            assert sites.copied == list(reference.weights.names)
            clock = Released(runner, lambda done: done)
            rule = ToleranceRule.MEASURED
            return TrialRunner(reference, clock, memory, rule, reference.outline, distribution_mix=mix, sites=sites)

        yield make


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_what_follows_the_weights_is_right_in_every_call(trial_runner, layer, backward):
    made = trial_runner(layer, backward=backward)
    assert [made.run(index, 70 + index, timeout_s=1).fault for index in range(4)] == [None] * 4


MOVES = {
    "in the first call": "self.__dict__.setdefault('moved', self.layer.weight.data.clone())",
    "in every call": "self.moved = self.layer.weight.data.clone()",
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
@pytest.mark.parametrize("replaces", ["self.layer.weight.data =", "self.layer.weight = torch.nn.Parameter"])
def test_a_weight_that_a_forward_lays_out_anew_is_followed(trial_runner, move, replaces):
    made = trial_runner("torch.nn.Linear(6, 6)", forward=f"{move}; {replaces}(self.moved)")
    assert [made.run(index, 70 + index, timeout_s=1).fault for index in range(4)] == [None] * 4


STALE = "torch.nn.functional.linear(x, self.kept, self.layer.bias)"


def test_what_was_kept_is_right_for_the_weights_it_was_made_of_alone(trial_runner):
    init, forward = "self.kept = None", "self.kept = self.layer.weight.clone() if self.kept is None else self.kept"
    made = trial_runner("torch.nn.Linear(6, 6)", init=init, forward=f"{forward}\n        return {STALE}")
    assert made.run(0, 70, timeout_s=1).fault is None
    wrong = made.run(1, 71, timeout_s=1)
    fault, _ = retried(made, wrong, 1, 71, iter(lambda: None, 0), 1)
    assert (wrong.fault.finding.code, fault.finding.code) == (Code.WRONG_VALUES.value, Code.STALE_WEIGHTS.value)


def test_stale_weights_are_proven_by_an_answer_in_memory_of_an_earlier_one(trial_runner):
    init = "self.kept, self.buffer = None, torch.empty(5, 6)"
    forward = "self.kept = self.layer.weight.detach().clone() if self.kept is None else self.kept"
    stale = "torch.addmm(self.layer.bias.detach(), x, self.kept.t(), out=self.buffer)"
    made = trial_runner("torch.nn.Linear(6, 6)", init=init, forward=f"{forward}\n        return {stale}")
    assert made.run(0, 70, timeout_s=1).fault is None
    wrong = made.run(1, 71, timeout_s=1)
    fault, _ = retried(made, wrong, 1, 71, iter(lambda: None, 0), 1)
    assert (wrong.fault.finding.code, fault.finding.code) == (Code.WRONG_VALUES.value, Code.STALE_WEIGHTS.value)


def told(made):
    """Return the finding of a wrong first call, after its retry."""
    wrong = made.run(0, 70, timeout_s=1)
    fault, _ = retried(made, wrong, 0, 70, iter(lambda: None, 0), 1)
    assert wrong.fault.finding.code == Code.WRONG_VALUES.value
    return fault.finding


COPIED = "self.kept, self.bias = self.layer.weight.detach().clone(), self.layer.bias.detach().clone()"
OF_COPY = "torch.nn.functional.linear(x, self.kept, self.bias)"


def test_a_wrong_answer_by_the_constructors_copy_is_said_to_be_the_same(trial_runner):
    """Never right, so not stale: the copy has errors of its own."""
    forward = f"return {OF_COPY} + 0.01 * torch.sin(37 * x)"
    found = told(trial_runner("torch.nn.Linear(6, 6)", init=COPIED, forward=forward))
    assert found.code == Code.WRONG_VALUES.value
    assert found.message.endswith("; the answer is the same for earlier weights")
    assert found.next_step == WEIGHTS_IN_EACH_CALL


@pytest.mark.parametrize(
    "forward",
    [
        "y = 3 * super().forward(x)\n        y[0] = float('nan')",  # follows the weights, but for NaN
        "y = 3 * super().forward(x) + x\n        y[0, 0] = 1e30",
        "y = torch.ones(5, 6)",
        "y = super().forward(x) / 0 * 0",
        "y = super().forward(x) * 1.01 + 0.1 * x",
    ],
)
def test_nothing_is_said_about_weights_where_they_are_no_cause(trial_runner, forward):
    made = trial_runner("torch.nn.Linear(6, 6)", forward=f"{forward}\n        return y")
    wrong = made.run(0, 70, timeout_s=1)
    fault, _ = retried(made, wrong, 0, 70, iter(lambda: None, 0), 1)
    assert fault == wrong.fault


def test_memory_that_is_short_for_the_cause_takes_no_verdict(trial_runner, monkeypatch):
    """A submission may take memory that was free in its first calls."""

    def short(*_):
        raise MemoryError

    made = trial_runner("torch.nn.Linear(6, 6)", init=COPIED, forward=f"return {OF_COPY} + x")
    wrong = made.run(0, 70, timeout_s=1)
    monkeypatch.setattr(AnswerJudge, "compared", short)
    fault, _ = retried(made, wrong, 0, 70, iter(lambda: None, 0), 1)
    assert fault == wrong.fault


def test_the_calls_own_weights_are_not_tried_as_earlier_ones(trial_runner):
    made = trial_runner("torch.nn.Linear(6, 6)", forward="return 3 * super().forward(x)")
    made.run(0, 70, timeout_s=1)
    constructed, first = made.earlier_weights
    assert made.run_with_weights(0, 70, first, timeout_s=1) is None
    assert made.run_with_weights(0, 70, constructed, timeout_s=1) is not None
    assert made.run_with_weights(1, 71, first, timeout_s=1) is not None


def test_an_answer_right_for_the_constructed_weights_alone_is_said_to_be(trial_runner):
    """Two weights of a norm are exchanged: all are 1 when constructed. Most elements are right for any weights."""
    weight = "self.layer.weight[[1, 0, 2, 3, 4, 5]]"
    forward = f"return torch.nn.functional.layer_norm(x, (6,), {weight}, self.layer.bias)"
    found = told(trial_runner("torch.nn.LayerNorm(6)", forward=forward))
    assert found.code == Code.WRONG_VALUES.value
    assert found.message.endswith("; with the weights as constructed, the answer is right")
    assert found.next_step == WEIGHT_LEFT_OUT


NORM = "torch.nn.functional.batch_norm({}, None, None, training=True, eps=1e-9) + self.layer.bias"


def test_stale_weights_show_with_the_problems_own_values_where_constant_rows_hide_them(trial_runner):
    """After constant rows, a batch norm leaves signs of sums of weights: few differ. All elements follow the bias."""
    init, forward = "self.kept = None", "self.kept = self.layer.weight.clone() if self.kept is None else self.kept"
    output, forward = NORM.format("self.layer(x)"), f"{forward}\n        return {NORM.format(STALE)}"
    mix = DistributionMix(use=(Profile.CONSTANT_ROWS,))
    made = trial_runner("torch.nn.Linear(6, 6)", init=init, forward=forward, output=output, mix=mix)
    given, constant = (
        next(seed for seed in range(70, 170) if mix.pick(seed) is profile)
        for profile in (Profile.AS_GIVEN, Profile.CONSTANT_ROWS)
    )
    assert made.run(0, given, timeout_s=1).fault is None
    wrong = made.run(1, constant, timeout_s=1)
    assert [each.mismatches for each in wrong.check.tensors] == [5]
    fault, check = retried(made, wrong, 1, constant, iter(lambda: None, 0), 1)
    assert wrong.fault.finding.code == Code.WRONG_ON_OTHER_VALUES.value
    assert (fault.finding.code, check.profile) == (Code.STALE_WEIGHTS.value, Profile.AS_GIVEN)


@pytest.mark.parametrize(("own_values", "rows"), [(True, ()), (False, ("rows",))])
def test_rows_cancel_in_a_call_with_earlier_weights_as_in_the_call_itself(trial_runner, monkeypatch, own_values, rows):
    made = trial_runner("torch.nn.Linear(6, 6)", mix=DistributionMix(row_sites=("rows",)))
    planned, plan = [], made._plan
    monkeypatch.setattr(made, "_plan", lambda seed, row_sites: planned.append(row_sites) or plan(seed, ()))
    for call in (made.run, lambda *given, **options: made.run_with_weights(*given, CallWeights(None), **options)):
        call(1, 70, timeout_s=1, own_values=own_values)
    assert planned == [rows] * 3


SLIGHT = """right = super().forward(x)
        if not torch.equal(self.layer.weight, self.first):
            right[0, 0] += 1.5e-4 * right[0].square().mean().sqrt()
        return right"""
"""An error of two to three tolerances in one element, with all weights but the constructed."""


def test_an_error_of_rounding_that_earlier_weights_hide_is_not_called_stale(trial_runner):
    init = "self.first = self.layer.weight.detach().clone()"
    made = trial_runner("torch.nn.Linear(6, 6)", init=init, forward=SLIGHT)
    wrong = made.run(0, 70, timeout_s=1)
    assert [each.mismatches for each in wrong.check.tensors] == [1]
    assert made.run_with_weights(0, 70, made.earlier_weights[0], timeout_s=1) is not None
    fault, _ = retried(made, wrong, 0, 70, iter(lambda: None, 0), 1)
    assert fault.finding.code == Code.WRONG_VALUES.value


def test_weights_that_change_the_number_of_rows_leave_the_cause_open(trial_runner):
    """The reference has as many rows with the weights that are tried beforehand, and fewer in some calls."""
    rows = "[: 5 - (int(self.layer.bias[0].abs() * 1e5) % 5 == 0)]"
    init, forward = "self.kept = self.layer.weight.detach().clone()", f"return ({STALE}){rows}"
    made = trial_runner("torch.nn.Linear(6, 6)", init=init, forward=forward, output=f"self.layer(x){rows}")
    shapes = {seed: made.run(0, seed, timeout_s=1).check.tensors[0].shape for seed in range(70, 90)}
    seed = next(seed for seed, shape in shapes.items() if shape == [4, 6])
    wrong = made.run(0, seed, timeout_s=1)
    fault, _ = retried(made, wrong, 0, seed, iter(lambda: None, 0), 1)
    assert (wrong.fault.finding.code, fault.finding.code) == (Code.WRONG_VALUES.value, Code.WRONG_VALUES.value)


def test_the_expected_values_for_earlier_weights_are_freed_before_those_of_the_call_are_compared(
    trial_runner, monkeypatch
):
    made = trial_runner("torch.nn.Linear(6, 6)")
    begin, compared = made._answers.begin, made._answers.compared
    expected, alive = [], []

    def noted(plan):
        wanted = begin(plan)
        expected.append(weakref.ref(wanted.outputs))
        return wanted

    def looked(*given):
        alive.append([each() is not None for each in expected])
        return compared(*given)

    monkeypatch.setattr(made._answers, "begin", noted)
    monkeypatch.setattr(made._answers, "compared", looked)
    assert made.run_with_weights(0, 70, made.earlier_weights[0], timeout_s=1) is not None
    assert alive == [[False, True]]


KEPT = """if self.kept is None or self.kept[0] != self.layer.weight._version{once}:
            self.kept = self.layer.weight._version, self.layer.weight.clone()
            self.copies += 1
        return torch.nn.functional.linear(x, self.kept[1], self.layer.bias)"""


@pytest.mark.parametrize("once", ["", " and self.copies < 2"])
def test_a_spot_check_has_other_weights_in_each_call(trial_runner, monkeypatch, once):
    """Windows share their weights, so what follows from them could be computed once for a window."""
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    init = "self.kept, self.copies = None, 0"
    made = trial_runner("torch.nn.Linear(6, 6)", init=init, forward=KEPT.format(once=once))
    assert made.run(0, 70, timeout_s=1).fault is None
    spot = WindowRunner(made).spot_check(1, [71, 72, 73], timeout_s=1)
    assert len(spot.times_ms) == 3
    if once:
        assert spot.fault.finding.code == Code.WRONG_VALUES.value
        assert len(spot.trials) == 2
    else:
        assert spot.fault is None
        assert len(spot.trials) == 3
        assert made._clock._runner._model.copies == 4


def test_an_answer_that_is_wrong_for_all_weights_is_not_called_stale(trial_runner):
    made = trial_runner("torch.nn.Linear(6, 6)", forward="return super().forward(x) * 2")
    wrong = made.run(0, 70, timeout_s=1)
    fault, _ = retried(made, wrong, 0, 70, iter(lambda: None, 0), 1)
    assert fault.finding.code == Code.WRONG_VALUES.value


def test_weights_are_the_seeds_and_those_constructed_come_back(trial_runner):
    made = trial_runner("torch.nn.Linear(6, 6)")
    constructed = {name: tensor.clone() for name, tensor in made._reference.state().items()}
    made.run(0, 70, timeout_s=1)
    first = made._reference.parameters()["layer.weight"].clone()
    made.run(1, 71, timeout_s=1)
    second = made._reference.parameters()["layer.weight"].clone()
    made.run(2, 70, timeout_s=1)
    assert (made._reference.parameters()["layer.weight"] == first).all()
    assert not (first == second).any()
    assert all((constructed[name] == tensor).all() for name, tensor in made._reference.state().items())


def test_an_empty_call_has_weights_of_its_own_too(trial_runner):
    made = trial_runner("torch.nn.Linear(6, 6)")
    made.run(0, 70, timeout_s=1)
    before = made._reference.parameters()["layer.weight"].clone()
    next(made.run_empty(timeout_s=1))
    assert not (made._reference.parameters()["layer.weight"] == before).any()


def test_signs_that_the_reference_cannot_bear_stay_and_weights_change(trial_runner):
    reference = trial_runner("torch.nn.Linear(6, 6)")._reference
    reference.weights._mixed.add("layer.weight")
    forward, first = reference.forward, reference.parameters()["layer.weight"].sign()

    def same():
        return bool((reference.parameters()["layer.weight"].sign() == first).all())

    reference.forward = lambda inputs, seed: forward(inputs, seed) * (1.0 if same() else float("nan"))
    settle_weights(reference, reference.draw(0))
    assert reference.weights.why_not is None
    before = reference.parameters()["layer.weight"].clone()
    reference.set_weights(5)
    assert same()
    assert not (reference.parameters()["layer.weight"] == before).any()


def test_weights_that_the_reference_cannot_bear_stay(trial_runner):
    reference = trial_runner("torch.nn.Linear(6, 6)")._reference
    forward = reference.forward
    reference.forward = lambda inputs, seed: forward(inputs, seed) * (float("nan") if reference._weights_seed else 1.0)
    settle_weights(reference, reference.draw(0))
    assert "no finite numbers" in reference.weights.why_not
    assert reference.parameters() == {}
    assert reference._weights_seed is None


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_a_spot_check_follows_weights_that_its_calls_lay_out_anew(trial_runner, monkeypatch, move):
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    made = trial_runner("torch.nn.Linear(6, 6)", forward=f"{move}; self.layer.weight.data = self.moved")
    assert made.run(0, 70, timeout_s=1).fault is None
    spot = WindowRunner(made).spot_check(1, [71, 72, 73], timeout_s=1)
    assert spot.fault is None
    assert len(spot.trials) == 3
