"""Warpgrade grades GPU kernels written against PyTorch references. This package is its interface for programs.

from warpgrade import grade

card = grade("relu", source, device="cpu")
if not card.correct:
    print(card.feedback())

Everything else lives in the package `evaluator`, whose names may change at any time.
"""

from evaluator.api.any_grader import Progress
from evaluator.api.candidate import Candidate
from evaluator.api.grader import Grader, grade
from evaluator.api.scorecard import Scorecard, read_card
from evaluator.batch.runs.problems import ProblemText
from evaluator.errors import CardError, InfraError, ProblemError, ProblemNotFound, UsageError, WarpgradeError
from evaluator.grade_options import GradeOptions
from evaluator.records import Build, Check, Finding, Status, Timing
from evaluator.service.client import RemoteGrader
from evaluator.version import __version__
from warpgrade import rewards

__all__ = [
    "Build",
    "Candidate",
    "CardError",
    "Check",
    "Finding",
    "GradeOptions",
    "Grader",
    "InfraError",
    "ProblemError",
    "ProblemNotFound",
    "ProblemText",
    "Progress",
    "RemoteGrader",
    "Scorecard",
    "Status",
    "Timing",
    "UsageError",
    "WarpgradeError",
    "__version__",
    "grade",
    "read_card",
    "rewards",
]
