"""A runner of the reference makes a call before the first one that counts."""

from types import SimpleNamespace

import pytest
import torch

from evaluator.devices.memory import HostRegion
from evaluator.judge.tensors.pytree import lay_out
from evaluator.judge.trial.model_runner import _that_fit
from evaluator.protocol.frames import Construct, Items, Table
from evaluator.protocol.frames.model_mode import ModelMode
from evaluator.runner.host_arena import HostArena
from evaluator.runner.main import Runner
from evaluator.runner.shared_memory import Shared

ROOM = 1 << 16


@pytest.mark.parametrize("fails", [False, True])
def test_a_rehearsal_calls_the_model_once_and_its_failure_is_no_failure(tmp_path, monkeypatch, fails):
    calls = []

    class Model(torch.nn.Module):
        def forward(self, x, *, scale):
            calls.append((x.tolist(), scale))
            if fails:
                raise ValueError("a call that counts would say so")
            return x * scale

    for name in ("synchronize", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    with HostRegion(ROOM) as inputs, HostRegion(ROOM) as outputs:
        runner = Runner(None, tmp_path)
        runner._memory = Shared(inputs.flat, HostArena(outputs.flat, ROOM), None, None)
        runner._model_new = Model
        placed = lay_out([("state", {}), ("rehearsal", [[torch.tensor([1.0, 2.0])], {"scale": 3}])], inputs)
        placed.write()
        state, rehearsal = placed.nodes
        construct = Construct(
            weight_seed=1,
            mode=ModelMode.TRAIN,
            args=Items(is_tuple=False, items=[]),
            kwargs=Table(keys=[], items=[]),
            state=state,
            rehearsal=rehearsal,
        )
        assert runner._answer(construct).difference is None
    assert calls == [([1.0, 2.0], 3)]


@pytest.mark.parametrize(("numbers", "fits"), [(8, True), (9, False)])
def test_inputs_are_rehearsed_where_they_surely_fit_beside_the_weights(numbers, fits):
    state, inputs = [("state", {"weight": torch.zeros(8)})], [[torch.zeros(numbers)], {}]
    assert _that_fit(state, inputs, SimpleNamespace(size_bytes=128)) == ([("rehearsal", inputs)] if fits else [])
