"""Warpgrade grades GPU kernels written against PyTorch references. This package is its interface for programs.

from warpgrade import Status, grade

card = grade("relu", source, device="cpu")
if card.status is Status.CORRECT:
    ...

Everything else lives in the package `evaluator`, whose names may change at any time.
"""

from evaluator.api.grader import Grader
from evaluator.api.library import Candidate, grade, grade_many, grade_many_async
from evaluator.errors import InfraError, ProblemError, ProblemNotFound, UsageError, WarpgradeError
from evaluator.grade_options import GradeOptions
from evaluator.records import Build, Check, Finding, Scorecard, Status, Timing
from evaluator.version import __version__

__all__ = [
    "Build",
    "Candidate",
    "Check",
    "Finding",
    "GradeOptions",
    "Grader",
    "InfraError",
    "ProblemError",
    "ProblemNotFound",
    "Scorecard",
    "Status",
    "Timing",
    "UsageError",
    "WarpgradeError",
    "__version__",
    "grade",
    "grade_many",
    "grade_many_async",
]
