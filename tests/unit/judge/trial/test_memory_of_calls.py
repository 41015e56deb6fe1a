"""Memory of the judge in a checked call: the inputs once, and some blocks."""

import weakref

import pytest
from torch.utils._python_dispatch import TorchDispatchMode

from evaluator.judge.reference import agreement, input_distributions
from evaluator.judge.setup import distribution_trials
from evaluator.judge.setup.distribution_mix import DistributionMix
from evaluator.judge.setup.distribution_trials import DistributionTrials
from evaluator.protocol.pytree import tensors_of
from evaluator.records import Profile, SizeName
from tests.unit import references

INPUT_BYTES = 1024 * 128 * 4
SUBMISSION = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.cat([rows.clamp(min=0).sum(1) for rows in x.split(16)])
"""


class Peak(TorchDispatchMode):
    """Counts the bytes of all tensors made meanwhile, and remembers the most that were alive at once."""

    def __init__(self):
        super().__init__()
        self._bytes = self.most_bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        given = {tensor.untyped_storage()._cdata for tensor in tensors_of([list(args), kwargs])}
        for tensor in tensors_of([result]):
            storage = tensor.untyped_storage()
            if tensor.device.type != "meta" and storage._cdata not in given:
                self._note(storage.nbytes())
                weakref.finalize(storage, self._note, -storage.nbytes())
        return result

    def _note(self, more_bytes):
        self._bytes += more_bytes
        self.most_bytes = max(self.most_bytes, self._bytes)


@pytest.fixture
def small_blocks(monkeypatch, tmp_path):
    """Have blocks and pieces in proportion to a small input, and each distance measured anew."""
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(agreement, "_BLOCK_BYTES", 1 << 14)
    monkeypatch.setattr(input_distributions, "_PIECE_ELEMENTS", 1 << 11)
    monkeypatch.setattr(distribution_trials, "_TRIED_ELEMENTS", 1 << 9)


@pytest.mark.usefixtures("small_blocks")
def test_a_checked_call_in_blocks_has_one_draw_of_the_inputs_in_memory(in_process):
    """A distance of wrong answers needs draws of its own: three beside the call's took 44 GiB of a GPU, not 26."""
    problem = references.problem("torch.relu(x).sum(1)", "torch.randn(1024, 128)", split={"x": 0})
    distances = DistributionTrials(None, SizeName.SMALL)
    mix = DistributionMix((Profile.SIGNED_NORMAL, Profile.LARGE), trials=distances)
    trials = in_process(problem, SUBMISSION, distribution_mix=mix)
    distances._reference = trials.reference
    for index, profile in enumerate((Profile.AS_GIVEN, Profile.LARGE)):
        seed = mix.seed_for(profile)
        with Peak() as peak:
            trial = trials.run(index, seed, timeout_s=1, second_opinion=True)
        assert (trial.fault, trial.check.benchmark_ok) == (None, True if profile is Profile.AS_GIVEN else None)
        assert trial.check.tensors[0].power > 0, "the distance was measured"
        assert INPUT_BYTES <= peak.most_bytes < 1.5 * INPUT_BYTES
