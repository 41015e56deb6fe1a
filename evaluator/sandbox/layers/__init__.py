"""Layers of the sandbox: probes, limits, set-up messages."""
