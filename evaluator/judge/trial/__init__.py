"""Trials: one call of a model in a runner, the timing loop, the retry."""
