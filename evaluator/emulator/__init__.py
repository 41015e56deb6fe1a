"""Inline CUDA on the CPU: a rewriter, headers and a runtime."""
