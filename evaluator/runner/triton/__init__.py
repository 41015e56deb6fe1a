"""Triton inside a runner: launches, compile errors, compiled kernels. Only `preloaded` imports Triton."""
