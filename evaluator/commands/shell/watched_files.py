"""Files to watch: of the submission, of the problem, and of the other submission."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from evaluator.catalog import find_problem
from evaluator.catalog.folder import PROBLEM_FILE, REFERENCE_FILE
from evaluator.errors import UsageError
from evaluator.submission.folder import possible_files
from evaluator.submission.read import STDIN
from evaluator.text import one_line


class WatchedFiles(NamedTuple):
    """Path of the submission, a function that lists all files, and a description."""

    submission: Path
    paths: Callable[[], Sequence[Path]]
    what: str


def files_of(named: Mapping[str, Any]) -> WatchedFiles:
    """Return the files of a grade with the given arguments.

    Raises:
        UsageError: the arguments name no file of a submission, or no problem.
    """
    if named["replay"] is not None:
        raise UsageError("--watch has no effect with --replay: a card does not change", hint="omit one of the two")
    if named["submission"] == STDIN:
        raise UsageError("--watch needs a file: - reads standard input once", hint="name the submission's file")
    if named["problem"] is None or named["submission"] is None:
        raise UsageError("--watch needs PROBLEM and SUBMISSION")
    submission = Path(named["submission"])
    problem = Path(find_problem(named["problem"], named["problems"]).path)
    of_problem = [problem / name for name in (PROBLEM_FILE, REFERENCE_FILE)] if problem.is_dir() else [problem]
    baseline = [] if named["speedup_of"] is None else [Path(named["speedup_of"])]

    def paths() -> list[Path]:
        files = [
            file for path in (submission, *baseline) for file in (possible_files(path) if path.is_dir() else [path])
        ]
        return [*files, *of_problem]

    return WatchedFiles(submission, paths, one_line(f"{submission} and {problem}", 160))
