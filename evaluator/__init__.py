"""Warpgrade: grades GPU kernels written against PyTorch references."""

from typing import TYPE_CHECKING, Any

from evaluator.version import __version__

if TYPE_CHECKING:
    from evaluator.batch.grader import Grader
    from evaluator.batch.library import Candidate, grade, grade_many, grade_many_async
    from evaluator.batch.options import GradeOptions

__all__ = ["Candidate", "GradeOptions", "Grader", "__version__", "grade", "grade_many", "grade_many_async"]


def __getattr__(name: str) -> Any:
    """Import what programs use when they do: runners import this package too, and know nothing of it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from evaluator.batch import library

    return getattr(library, name)
