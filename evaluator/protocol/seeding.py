"""Identical seeding of PyTorch's generators in judge and runner."""

import torch


def seed_torch(seed: int) -> None:
    """Seed the CPU generator and, if CUDA is initialized, the CUDA generator.

    `torch.manual_seed` also records the full call stack for every uninitialized device type: 0.3 ms per call.
    """
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed(seed)
