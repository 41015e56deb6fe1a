"""Clocks: reveal the inputs, time one call, sample the runner's memory."""
