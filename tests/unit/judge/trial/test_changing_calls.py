"""Calls with weights of their own, with the runner's own code in this process: the runner copies its weights here."""

import weakref

import pytest
import torch

from evaluator.findings import Code
from evaluator.findings.comparing import WEIGHT_LEFT_OUT, WEIGHTS_IN_EACH_CALL
from evaluator.judge.answer.answer_judge import AnswerJudge
from evaluator.judge.reference.changing_weights import CallWeights
from evaluator.judge.reference.dependence import settle_weights
from evaluator.judge.setup.distribution_mix import AS_GIVEN_ALONE, DistributionMix
from evaluator.judge.trial import trial_runner
from evaluator.judge.trial.windows import WindowRunner
from evaluator.records import Profile
from tests.unit import references

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
LINEAR = "torch.nn.Linear(6, 6)"
LAYERS = {
    "a linear layer": LINEAR,
    "in half precision": "torch.nn.Linear(6, 6).bfloat16()",
    "a batch norm in training": "torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.BatchNorm1d(6))",
    "dropout": "torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Dropout())",
    "a layer used twice": "(lambda one: torch.nn.Sequential(one, one))(torch.nn.Linear(6, 6))",
}


@pytest.fixture
def trials_of(in_process):
    """Make trials of a reference with one layer, and of a submission that adds to it."""

    def made(forward="pass", *, layer=LINEAR, backward=False, init="pass", output="self.layer(x)", mix=AS_GIVEN_ALONE):
        given = "torch.randn(5, 6, dtype=torch.bfloat16)" if "bfloat16" in layer else "torch.randn(5, 6)"
        problem = references.problem(output, given, f"self.layer = {layer}", backward=backward)
        return in_process(problem, SUBMISSION.format(init=init, forward=forward), changing=True, distribution_mix=mix)

    return made


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_what_follows_the_weights_is_right_in_every_call(trials_of, layer, backward):
    assert [trial.fault for trial in trials_of(layer=layer, backward=backward).several(4)] == [None] * 4


MOVES = {
    "in the first call": "self.__dict__.setdefault('moved', self.layer.weight.data.clone())",
    "in every call": "self.moved = self.layer.weight.data.clone()",
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
@pytest.mark.parametrize("replaces", ["self.layer.weight.data =", "self.layer.weight = torch.nn.Parameter"])
def test_a_weight_that_a_forward_lays_out_anew_is_followed(trials_of, monkeypatch, move, replaces):
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    trials = trials_of(f"{move}; {replaces}(self.moved)")
    assert [trial.fault for trial in trials.several(4)] == [None] * 4
    spot = WindowRunner(trials).spot_check(1, [1, 2, 3], timeout_s=1)
    assert (spot.fault, len(spot.trials)) == (None, 3)


KEEP = "self.kept = self.layer.weight.detach().clone() if self.kept is None else self.kept"
STALE = "torch.nn.functional.linear(x, self.kept, self.layer.bias)"
IN_BUFFER = "torch.addmm(self.layer.bias.detach(), x, self.kept.t(), out=self.buffer)"


@pytest.mark.parametrize("answer", [STALE, IN_BUFFER], ids=["in new memory", "in memory of an earlier answer"])
def test_what_was_kept_is_right_for_the_weights_it_was_made_of_alone(trials_of, answer):
    init = "self.kept, self.buffer = None, torch.empty(5, 6)"
    trials = trials_of(f"{KEEP}\n        return {answer}", init=init)
    assert trials.run(0, 70, timeout_s=1).fault is None
    wrong, fault, _ = trials.retried(71, index=1)
    assert (wrong.fault.finding.code, fault.finding.code) == (Code.WRONG_VALUES.value, Code.STALE_WEIGHTS.value)


COPIED = "self.kept, self.bias = self.layer.weight.detach().clone(), self.layer.bias.detach().clone()"
OF_COPY = "torch.nn.functional.linear(x, self.kept, self.bias)"
EXCHANGED = "torch.nn.functional.layer_norm(x, (6,), self.layer.weight[[1, 0, 2, 3, 4, 5]], self.layer.bias)"


@pytest.mark.parametrize(
    ("layer", "init", "answer", "said", "step"),
    [
        # Never right, so not stale: the copy has errors of its own.
        (
            LINEAR,
            COPIED,
            f"{OF_COPY} + 0.01 * torch.sin(37 * x)",
            "; the answer is the same for earlier weights",
            WEIGHTS_IN_EACH_CALL,
        ),
        # Two weights of a norm are exchanged: all are 1 when constructed. Most elements are right for any weights.
        (
            "torch.nn.LayerNorm(6)",
            "pass",
            EXCHANGED,
            "; with the weights as constructed, the answer is right",
            WEIGHT_LEFT_OUT,
        ),
    ],
    ids=["the constructor's copy", "right as constructed"],
)
def test_what_is_told_of_weights_beside_wrong_values(trials_of, layer, init, answer, said, step):
    _, fault, _ = trials_of(f"return {answer}", layer=layer, init=init).retried(70)
    assert fault.finding.code == Code.WRONG_VALUES.value
    assert fault.finding.message.endswith(said)
    assert fault.finding.next_step == step


@pytest.mark.parametrize(
    "forward",
    [
        "y = 3 * super().forward(x)\n        y[0] = float('nan')",  # follows the weights, but for NaN
        "y = 3 * super().forward(x) + x\n        y[0, 0] = 1e30",
        "y = torch.ones(5, 6)",
        "y = super().forward(x) / 0 * 0",
        "y = super().forward(x) * 1.01 + 0.1 * x",
        "y = super().forward(x) * 2",
    ],
)
def test_nothing_is_said_about_weights_where_they_are_no_cause(trials_of, forward):
    wrong, fault, _ = trials_of(f"{forward}\n        return y").retried(70)
    assert fault == wrong.fault


def test_memory_that_is_short_for_the_cause_takes_no_verdict(trials_of, monkeypatch):
    """A submission may take memory that was free in its first calls."""

    def short(*_):
        raise MemoryError

    monkeypatch.setattr(AnswerJudge, "compared", short)
    wrong, fault, _ = trials_of(f"return {OF_COPY} + x", init=COPIED).retried(70)
    assert fault == wrong.fault


def test_the_calls_own_weights_are_not_tried_as_earlier_ones(trials_of):
    trials = trials_of("return 3 * super().forward(x)")
    trials.run(0, 70, timeout_s=1)
    constructed, first = trials.earlier_weights
    assert trials.run_with_weights(0, 70, first, timeout_s=1) is None
    assert trials.run_with_weights(0, 70, constructed, timeout_s=1) is not None
    assert trials.run_with_weights(1, 71, first, timeout_s=1) is not None


NORM = "torch.nn.functional.batch_norm({}, None, None, training=True, eps=1e-9) + self.layer.bias"


def test_stale_weights_show_with_the_problems_own_values_where_constant_rows_hide_them(trials_of):
    """After constant rows, a batch norm leaves signs of sums of weights: few differ. All elements follow the bias."""
    mix = DistributionMix(use=(Profile.CONSTANT_ROWS,))
    forward = f"{KEEP}\n        return {NORM.format(STALE)}"
    trials = trials_of(forward, init="self.kept = None", output=NORM.format("self.layer(x)"), mix=mix)
    given, constant = (
        next(seed for seed in range(70, 170) if mix.pick(seed) is profile)
        for profile in (Profile.AS_GIVEN, Profile.CONSTANT_ROWS)
    )
    assert trials.run(0, given, timeout_s=1).fault is None
    wrong, fault, check = trials.retried(constant, index=1)
    assert [each.mismatches for each in wrong.check.tensors] == [5]
    assert wrong.fault.finding.code == Code.WRONG_ON_OTHER_VALUES.value
    assert (fault.finding.code, check.profile) == (Code.STALE_WEIGHTS.value, Profile.AS_GIVEN)


@pytest.mark.parametrize(("own_values", "rows"), [(True, ()), (False, ("rows",))])
def test_rows_cancel_in_a_call_with_earlier_weights_as_in_the_call_itself(trials_of, monkeypatch, own_values, rows):
    trials = trials_of(mix=DistributionMix(row_sites=("rows",)))
    planned, plan = [], trial_runner.CallPlan

    def noted(*given, row_sites, **how):
        planned.append(row_sites)
        return plan(*given, **how)

    monkeypatch.setattr(trial_runner, "CallPlan", noted)
    trials.run(1, 70, timeout_s=1, own_values=own_values)
    trials.run_with_weights(1, 70, CallWeights(None), timeout_s=1, own_values=own_values)
    assert planned == [rows] * 3


SLIGHT = """right = super().forward(x)
        if not torch.equal(self.layer.weight, self.first):
            right[0, 0] += 1.5e-4 * right[0].square().mean().sqrt()
        return right"""
"""An error of two to three tolerances in one element, with all weights but the constructed."""


def test_an_error_of_rounding_that_earlier_weights_hide_is_not_called_stale(trials_of):
    trials = trials_of(SLIGHT, init="self.first = self.layer.weight.detach().clone()")
    wrong, fault, _ = trials.retried(70)
    assert [each.mismatches for each in wrong.check.tensors] == [1]
    assert trials.run_with_weights(0, 70, trials.earlier_weights[0], timeout_s=1) is not None
    assert fault.finding.code == Code.WRONG_VALUES.value


def test_weights_that_change_the_number_of_rows_leave_the_cause_open(trials_of):
    """The reference has as many rows with the weights that are tried beforehand, and fewer in some calls."""
    rows = "[: 5 - (int(self.layer.bias[0].abs() * 1e5) % 5 == 0)]"
    init = "self.kept = self.layer.weight.detach().clone()"
    trials = trials_of(f"return ({STALE}){rows}", init=init, output=f"self.layer(x){rows}")
    shapes = {seed: trials.run(0, seed, timeout_s=1).check.tensors[0].shape for seed in range(70, 90)}
    wrong, fault, _ = trials.retried(next(seed for seed, shape in shapes.items() if shape == [4, 6]))
    assert (wrong.fault.finding.code, fault.finding.code) == (Code.WRONG_VALUES.value, Code.WRONG_VALUES.value)


def test_the_expected_values_for_earlier_weights_are_freed_before_those_of_the_call_are_compared(
    trials_of, monkeypatch
):
    begin, compared = AnswerJudge.begin, AnswerJudge.compared
    expected, alive = [], []

    def noted(judge, plan):
        wanted = begin(judge, plan)
        expected.append(weakref.ref(wanted.outputs))
        return wanted

    def looked(*given):
        alive.append([each() is not None for each in expected])
        return compared(*given)

    monkeypatch.setattr(AnswerJudge, "begin", noted)
    monkeypatch.setattr(AnswerJudge, "compared", looked)
    trials = trials_of()
    assert trials.run_with_weights(0, 70, trials.earlier_weights[0], timeout_s=1) is not None
    assert alive == [[False, True]]


KEPT = """if self.kept is None or self.kept[0] != self.layer.weight._version{once}:
            self.kept = self.layer.weight._version, self.layer.weight.clone()
            self.copies += 1
        return torch.nn.functional.linear(x, self.kept[1], self.layer.bias)"""


@pytest.mark.parametrize("once", ["", " and self.copies < 2"])
def test_a_spot_check_has_other_weights_in_each_call(trials_of, monkeypatch, once):
    """Windows share their weights, so what follows from them could be computed once for a window."""
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    trials = trials_of(KEPT.format(once=once), init="self.kept, self.copies = None, 0")
    assert trials.run(0, 70, timeout_s=1).fault is None
    spot = WindowRunner(trials).spot_check(1, [71, 72, 73], timeout_s=1)
    assert len(spot.times_ms) == 3
    if once:
        assert spot.fault.finding.code == Code.WRONG_VALUES.value
        assert len(spot.trials) == 2
    else:
        assert (spot.fault, len(spot.trials), trials.clock.model.copies) == (None, 3, 4)


def test_weights_are_the_seeds_and_those_constructed_come_back(trials_of):
    trials = trials_of()
    constructed = {name: tensor.clone() for name, tensor in trials.reference.state().items()}
    seen = []
    for index, seed in enumerate((70, 71, 70)):
        trials.run(index, seed, timeout_s=1)
        seen.append(trials.reference.parameters()["layer.weight"].clone())
    next(trials.run_empty(timeout_s=1))
    first, second, again = seen
    assert torch.equal(first, again)
    assert not (first == second).any()
    assert not (trials.reference.parameters()["layer.weight"] == first).any(), "an empty call has its own too"
    assert all(torch.equal(constructed[name], tensor) for name, tensor in trials.reference.state().items())


def test_signs_that_the_reference_cannot_bear_stay_and_weights_change(trials_of):
    reference = trials_of().reference
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


def test_weights_that_the_reference_cannot_bear_stay(trials_of):
    reference = trials_of().reference
    forward = reference.forward
    reference.forward = lambda inputs, seed: forward(inputs, seed) * (float("nan") if reference.weights_seed else 1.0)
    settle_weights(reference, reference.draw(0))
    assert "no finite numbers" in reference.weights.why_not
    assert (reference.parameters(), reference.weights_seed) == ({}, None)
