"""Sandbox for untrusted code: fork server, confined runners and tools, resource limits, freeze and kill.

The judge uses the names exported below. Each sandbox layer has a module: view, landlock, seccomp, cage, privileges,
limits. Only `question.py` depends on the protocol's frames.
"""

from evaluator.sandbox.available_layers import Layers, Limits, Machine
from evaluator.sandbox.confined_process import Child, ConfinedProcess, ExitInfo
from evaluator.sandbox.fork_server_client import DEFAULT_PRELOAD, ForkServer
from evaluator.sandbox.tool import ToolResult, run_tool

__all__ = [
    "DEFAULT_PRELOAD",
    "Child",
    "ConfinedProcess",
    "ExitInfo",
    "ForkServer",
    "Layers",
    "Limits",
    "Machine",
    "ToolResult",
    "run_tool",
]
