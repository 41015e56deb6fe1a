"""Triton inside a runner: launches, compile errors, compiled kernels. No module here imports Triton."""
