"""Clocks: reveal the inputs, time one call, observe the memory of a runner."""
