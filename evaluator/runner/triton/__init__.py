"""Triton inside a runner: launches, compile errors, compiled kernels. No module of the package imports Triton."""
