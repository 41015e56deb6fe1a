"""Instruments inside a runner: operation counter, ablation, profiler."""
