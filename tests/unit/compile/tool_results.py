"""Results of compilers that never ran."""

from evaluator.sandbox import ToolResult


def ended(exit_code=0, output="", **changes):
    """Return the result of a program that ended after a second."""
    usual = {"exit_code": exit_code, "signal": None, "timed_out": False, "output": output, "wall_s": 1.0}
    return ToolResult(**(usual | changes))
