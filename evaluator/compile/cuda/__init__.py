"""Builds of inline CUDA for a GPU: split builds first, PyTorch's own build last."""
