"""CUDA C++ as text: tokens, declarations, launches, the split into host and device code, and names of kernels.

Nothing here starts a compiler, and nothing needs PyTorch.
"""
