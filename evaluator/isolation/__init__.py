"""Sandbox for untrusted code: fork server, confined runners and tools, resource limits, freeze and kill.

The judge uses the names exported below. Each sandbox layer has a module: view, landlock, seccomp, cage, privileges,
limits. The package does not depend on the protocol between judge and runner.
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
