"""Results and messages of compilers that never ran."""

from evaluator.records import Diagnostic
from evaluator.sandbox import ToolResult


def ended(exit_code=0, output="", **changes):
    """Return the result of a program that ended after a second."""
    usual = {"exit_code": exit_code, "signal": None, "timed_out": False, "output": output, "wall_s": 1.0}
    return ToolResult(**(usual | changes))


def error(message, **changes):
    """Return an error in the first line of main.cpp, which is no line of a submission."""
    usual = {"severity": "error", "message": message, "file": "main.cpp", "line": 1, "column": 1}
    return Diagnostic(**(usual | {"submission_line": None, "source_line": ""} | changes))
