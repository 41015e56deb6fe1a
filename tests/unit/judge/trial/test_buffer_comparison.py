"""Buffers that forward updates: what the runner reports, and what the judge holds against it."""

import pytest
import torch

from evaluator.judge.reference.call_plan import CallPlan
from evaluator.judge.trial import buffer_comparison
from evaluator.judge.trial.buffer_comparison import BufferComparison, differences, expected_buffers, tensor_of
from evaluator.protocol.frames import BufferValue
from evaluator.runner.parameters import buffer_values
from tests.unit.references import reference

NORM = {"output": "self.norm(x)", "given": "torch.randn(32, 6)", "init": "self.norm = nn.BatchNorm1d(6)"}
NAMES = ["norm.running_mean", "norm.running_var"]
UPDATES = {
    "right": (lambda old, new: new, None),
    "stale": (lambda old, new: old, "ModelNew does not"),
    "another momentum": (lambda old, new: old + (new - old) * 1.1, "ModelNew's differ"),
}


@pytest.mark.parametrize(("update", "said"), UPDATES.values(), ids=UPDATES)
def test_a_buffer_is_right_only_after_the_references_own_update(update, said):
    made = reference(**NORM)
    before = {"norm.running_mean": torch.full((6,), 3.0), "norm.running_var": torch.full((6,), 2.0)}
    plan = CallPlan(made, 7)
    expected = expected_buffers(plan, before)
    assert torch.allclose(expected.honest["norm.running_mean"], 2.7 + 0.1 * plan.inputs.args[0].mean(0))
    assert not made.model.norm.running_mean.any()  # The reference itself is unchanged.
    both = {name: (old, update(old, expected.honest[name])) for name, old in before.items()}
    found = differences(made.problem, NAMES, both, expected)
    wanted = [] if said is None else [f"the reference updates {', '.join(NAMES)}; {said}"]
    assert [each.message for each in found] == wanted


def test_a_missing_buffer_is_named():
    made = reference(**NORM)
    (found,) = differences(made.problem, NAMES, {}, expected_buffers(CallPlan(made, 7), {}))
    assert found.message.endswith("running_var; ModelNew has no such buffer")


@pytest.mark.parametrize("training", [True, False])
def test_only_buffers_that_forward_changes_are_compared(training):
    made = reference(**NORM)
    made.model.train(training)
    watched = BufferComparison(made)
    made.forward(made.draw(1), 0)
    assert set(NAMES).issubset(watched.updated) is training


def test_no_more_is_compared_than_a_frame_may_hold(monkeypatch):
    made = reference(**NORM)
    monkeypatch.setattr(buffer_comparison, "_MOST_BYTES", 30)  # A buffer has 24 bytes.
    watched = BufferComparison(made)
    made.forward(made.draw(1), 0)
    assert watched.updated == NAMES[:1]


def test_a_reported_buffer_has_the_references_dtype_shape_and_length():
    like, data = torch.zeros(2), torch.ones(2).numpy().tobytes()
    report = BufferValue(dtype="float32", shape=(2,), data=data)
    assert torch.equal(tensor_of(report, like), torch.ones(2))
    for dtype, shape, values in (("float64", (2,), data), ("float32", (1 << 60,), data), ("float32", (2,), data[:4])):
        assert tensor_of(BufferValue(dtype=dtype, shape=shape, data=values), like) is None


def test_a_runner_reports_buffers_by_the_references_names():
    model = torch.nn.Module()
    model.mean = torch.ones(3)
    found = buffer_values(model, {"norm.running_mean": "mean", "norm.running_var": "var"})
    assert list(found) == ["norm.running_mean"]
    assert torch.equal(tensor_of(found["norm.running_mean"], torch.zeros(3)), torch.ones(3))


def test_a_buffer_of_one_element_may_have_any_stride():
    model = torch.nn.Module()
    model.register_buffer("count", torch.arange(8.0)[::5][1:])
    assert torch.equal(
        tensor_of(buffer_values(model, {"count": "count"})["count"], torch.zeros(1)), torch.tensor([5.0])
    )
