"""CUDA C++ of a submission, parsed in a sandboxed process."""

REHEARSING = f"{__name__}.sandboxed_parser"
"""Module of the sandboxed process. Its name alone costs a fork server's start no import."""
