"""Walls around untrusted code: a pre-forked starter, confined runners and tools, limits, freezing and killing.

What the judge uses is here; each wall has a module of its own (view, landlock, seccomp, cage, privileges, limits).
Nothing in this package knows what judge and runner say to each other.
"""

from evaluator.isolation.child import Child, ConfinedProcess, ExitInfo
from evaluator.isolation.limits import Limits
from evaluator.isolation.machine import Machine, Walls
from evaluator.isolation.supervision import DEFAULT_PRELOAD, Starter
from evaluator.isolation.tool import ToolResult, run_tool

__all__ = [
    "DEFAULT_PRELOAD",
    "Child",
    "ConfinedProcess",
    "ExitInfo",
    "Limits",
    "Machine",
    "Starter",
    "ToolResult",
    "Walls",
    "run_tool",
]
