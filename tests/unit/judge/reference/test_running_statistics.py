"""Batch norms by running statistics, in a context that leaves the model as it was."""

import torch
from torch import nn

from evaluator.judge.reference.running_statistics import by_running_statistics, running_statistics

X = torch.randn(8, 4)


def model() -> nn.Sequential:
    made = nn.Sequential(nn.BatchNorm1d(4), nn.BatchNorm1d(4, track_running_stats=False), nn.BatchNorm1d(4).eval())
    made(X)
    return made


def test_only_norms_with_statistics_of_their_own_compute_by_the_batch_otherwise():
    assert list(running_statistics(model())) == ["0"]


def test_the_statistics_are_those_of_the_given_moment():
    made = model()
    before = running_statistics(made)
    expected = nn.functional.batch_norm(X, *before["0"])
    made(X + 3)
    wide = made.double()
    with by_running_statistics(wide, before):
        assert torch.allclose(wide[0](X.double()), expected.double(), atol=1e-5)


def test_the_model_is_as_before():
    made = model()
    state = {name: value.clone() for name, value in made.state_dict().items()}
    before = made[0](X)
    made.load_state_dict(state)
    with by_running_statistics(made, {"0": (torch.ones(4), torch.ones(4))}):
        made(X)
    assert [each.training for each in made] == [True, True, False]
    assert all(torch.equal(state[name], value) for name, value in made.state_dict().items())
    assert torch.equal(made[0](X), before)
