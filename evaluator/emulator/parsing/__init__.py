"""CUDA C++ of a submission, parsed in a sandboxed process."""

PARSER = f"{__name__}.parse_in_sandbox"
"""Module of the sandboxed process. By name, so that a fork server starts before the judge imports the parser."""
