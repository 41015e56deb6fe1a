"""CUDA C++ of a submission, parsed in a sandboxed process."""

REHEARSING = f"{__name__}.sandboxed_parser"
"""Module of the sandboxed process. By name, so that a fork server starts before the judge imports the parser."""
