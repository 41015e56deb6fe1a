"""Warpgrade: grades GPU kernels written against PyTorch references."""

from evaluator.version import __version__

__all__ = ["__version__"]
