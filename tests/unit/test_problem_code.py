"""The author's `cuda` is another device, for tensors and for generators."""

import pytest
import torch

from evaluator.problem_code import CudaMeans

GENERATOR = torch.Generator


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_generators_are_of_the_device_of_use(device):
    means = torch.device(device)
    with CudaMeans(means), CudaMeans(means):
        made = torch.Generator(device="cuda").manual_seed(3)
        again = torch.Generator("cuda:0").manual_seed(3)
        drawn = torch.rand(4, device="cuda", generator=made)
        assert drawn.device.type == device
        assert torch.Generator().device.type == "cpu"
        if device == "cpu":
            assert torch.equal(drawn, torch.rand(4, device="cuda", generator=again))
    assert torch.Generator is GENERATOR


def test_the_mapping_ends_with_an_error():
    with pytest.raises(ZeroDivisionError), CudaMeans(torch.device("cpu")):
        1 / 0  # noqa: B018
    assert torch.Generator is GENERATOR
