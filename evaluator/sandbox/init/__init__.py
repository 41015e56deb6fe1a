"""Trusted processes around a runner: fork server, supervisor, pid 1, sandbox entry."""
