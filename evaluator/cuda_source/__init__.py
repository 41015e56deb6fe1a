"""Text analysis of CUDA C++: tokens, declarations, launches, the split into host and device code, kernel names.

The package runs no compiler and needs no PyTorch.
"""
