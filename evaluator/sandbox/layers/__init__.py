"""Layers of the sandbox on this machine: probes, limits, messages that set them up."""
