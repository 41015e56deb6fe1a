"""CUDA emulator for the CPU: a source rewriter, replacement headers and a runtime library."""
