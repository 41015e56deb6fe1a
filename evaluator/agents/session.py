"""Grades of a server's session: workers start with the first grade, and end with the session."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from evaluator.agents.tools import CHOICES, ToolTerms
from evaluator.api.grader import Grader
from evaluator.api.scorecard import Scorecard
from evaluator.catalog import Listing, find_listed, list_problems
from evaluator.errors import ProblemNotFound, UsageError
from evaluator.files.safe_open import read_found
from evaluator.grade_options import given
from evaluator.grading.resolved_request import options_for
from evaluator.records import Problem, ProfilerKind
from evaluator.submission.read import MAX_ANSWER_BYTES

_LISTED = "the tool `problems` without a name lists all"


_PROFILE = {"profile": ProfilerKind.TORCH}


class AgentSession:
    """Problems and grades under the terms that the user chose. An agent chooses the rest."""

    def __init__(self, options: Mapping[str, Any], root: Path | None = None) -> None:
        """Read the options of all grades. The agent may name files below `root`.

        Raises:
            UsageError: an option is invalid.
            InfraError: the machine has no GPU.
        """
        self._folder = options.get("problems")
        self._starting = threading.Lock()
        self._has_started = self._closed = False
        self._root = None if root is None else root.absolute()
        self._grader = Grader(**options)
        self.terms = ToolTerms(root is not None, _has_profiler(options), _left(options))

    def listing(self) -> Listing:
        """Return all problems. Raises ProblemError if the folder does not exist."""
        return list_problems(self._folder)

    def problem(self, name: str) -> Problem:
        """Return a problem by its name, or by a short name as in `grade`. A name of an agent is no path.

        Raises:
            ProblemNotFound: no problem has the name, or several have.
            ProblemError: the problem is broken.
        """
        try:
            return find_listed(name, self._folder)
        except ProblemNotFound as error:  # Its hint names commands, which the agent may lack.
            raise ProblemNotFound(name[:80], error.nearest, _LISTED) from error

    def source_at(self, path: str) -> str:
        """Return the text of a file below the root, named by a relative or a full path. No part may be a link.

        Raises:
            UsageError: the file cannot be read, or is none of text.
        """
        hint = "`path` names a file of text below the root, without links and without .."
        if self._root is None:
            raise UsageError("this server reads no files", hint="start it with --root DIR")
        try:
            content = read_found(self._root, path.removeprefix(f"{self._root}/"), MAX_ANSWER_BYTES)
            if len(content) > MAX_ANSWER_BYTES:
                raise UsageError(f"{path[:200]!r} is larger than {MAX_ANSWER_BYTES >> 20} MiB")
            return content.decode()
        except OSError as error:
            raise UsageError(f"cannot read {path[:200]!r}: {error.strerror}", hint=hint) from error
        except ValueError as error:  # a NUL in the path, or no text
            raise UsageError(f"{path[:200]!r} is no file of UTF-8 text", hint=hint) from error

    async def grade(
        self,
        problem: str,
        source: str,
        on_stage: Callable[[str], object],
        options: Mapping[str, Any],
        *,
        profiled: bool = False,
    ) -> Scorecard:
        """Grade a submission without blocking the event loop. `on_stage` is called in another thread.

        `options` are those that the agent chose for this grade.

        Raises:
            ProblemNotFound: no problem has the name.
            UsageError: the problem has no such size or case.
        """
        chosen = {**options, **_PROFILE} if profiled else options

        def submitted() -> Any:
            # A problem's first grade may search for a small size, and a worker takes seconds to start.
            try:
                return self._started().submit_with(problem, source, on_stage=on_stage, options=chosen)
            except ProblemNotFound as error:  # Its hint names commands, which the agent may lack.
                raise ProblemNotFound(problem[:80], error.nearest, _LISTED) from error

        return await asyncio.wrap_future(await asyncio.to_thread(submitted))

    def close(self) -> None:
        """End all workers and unfinished grades."""
        with self._starting:
            self._closed = True
            self._grader.close()

    def _started(self) -> Grader:
        with self._starting:
            if self._closed:
                raise UsageError("the session has ended", hint="start `warpgrade mcp` again")
            if not self._has_started:
                self._grader.start()
                self._has_started = True
            return self._grader


def _has_profiler(options: Mapping[str, Any]) -> bool:
    try:
        options_for({**options, **_PROFILE})
    except UsageError:  # the device has none
        return False
    return True


def _left(options: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the choices that the user left to the agent: size and cases exclude each other."""
    chosen = {name for name, value in given(options).items() if value is not False}
    if chosen & {"size", "case"}:
        chosen |= {"size", "case"}
    return frozenset(CHOICES) - chosen
