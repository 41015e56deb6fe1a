"""Running statistics of batch norms, and a model that computes by them, as in evaluation mode."""

import contextlib
from collections.abc import Iterator, Mapping

import torch
from torch.nn.modules.batchnorm import _BatchNorm

RunningStatistics = Mapping[str, tuple[torch.Tensor, torch.Tensor]]
"""Mean and variance by the name of the module."""


def running_statistics(model: torch.nn.Module) -> RunningStatistics:
    """Return copies of the statistics of the batch norms that compute by the batch's own."""
    return {
        name: (module.running_mean.detach().clone(), module.running_var.detach().clone())
        for name, module in _by_batch(model).items()
        if module.running_mean is not None and module.running_var is not None
    }


@contextlib.contextmanager
def by_running_statistics(model: torch.nn.Module, statistics: RunningStatistics) -> Iterator[None]:
    """Context in which the batch norms of `model` compute by `statistics`, converted to the dtypes of the model."""
    with contextlib.ExitStack() as leaving:
        for name, norm in _by_batch(model).items():
            mean, variance = norm.running_mean, norm.running_var
            if name in statistics and mean is not None and variance is not None:
                leaving.callback(_restore, norm, mean, variance)
                norm.running_mean, norm.running_var = (statistic.to(mean.dtype) for statistic in statistics[name])
                norm.eval()
        yield


def _by_batch(model: torch.nn.Module) -> dict[str, _BatchNorm]:
    modules = model.named_modules()
    return {name: module for name, module in modules if isinstance(module, _BatchNorm) and module.training}


def _restore(norm: _BatchNorm, mean: torch.Tensor, variance: torch.Tensor) -> None:
    norm.train()
    norm.running_mean, norm.running_var = mean, variance
