"""Grades of a server's session: workers start with the first grade, and end with the session."""

import asyncio
import difflib
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from evaluator.agents.tools import ToolTerms
from evaluator.api.grader import Grader
from evaluator.api.scorecard import Scorecard
from evaluator.catalog import Listing, list_problems
from evaluator.errors import ProblemNotFound, UsageError
from evaluator.files.safe_open import read_found
from evaluator.records import Problem, ProfilerKind, SizeName
from evaluator.submission.read import MAX_ANSWER_BYTES

_LISTED = "the tool `problems` without a name lists all"


class _GraderKind(NamedTuple):
    """What distinguishes the workers of two grades of a session."""

    size: SizeName | None = None
    profiled: bool = False


class AgentSession:
    """Problems and grades under the terms that the user chose. An agent chooses problem and submission only."""

    def __init__(self, options: Mapping[str, Any], root: Path | None = None) -> None:
        """Read the options of all grades. The agent may name files below `root`.

        Raises:
            UsageError: an option is invalid.
            InfraError: the machine has no GPU.
        """
        self._options = dict(options)
        self._folder = options.get("problems")
        self._starting = threading.Lock()
        self._closed = False
        self._root = None if root is None else root.absolute()
        self._graders: dict[_GraderKind, Grader] = {_GraderKind(): Grader(**self._options)}
        self._started: set[_GraderKind] = set()
        has_sizes = options.get("size") is None and not options.get("case")
        self.terms = ToolTerms(root is not None, has_sizes, self._has_profiler())

    def listing(self) -> Listing:
        """Return all problems. Raises ProblemError if the folder does not exist."""
        return list_problems(self._folder)

    def problem(self, name: str) -> Problem:
        """Return a problem by its exact name: a name of an agent is no path.

        Raises:
            ProblemNotFound: no problem has the name.
        """
        problems = {problem.name: problem for problem in self.listing().problems}
        if name not in problems:
            similar = difflib.get_close_matches(name, problems, n=3)
            raise ProblemNotFound(name[:80], similar, _LISTED)
        return problems[name]

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
        *,
        size: SizeName | None = None,
        profiled: bool = False,
    ) -> Scorecard:
        """Grade a submission without blocking the event loop. `on_stage` is called in another thread.

        Raises:
            ProblemNotFound: no problem has the name.
            UsageError: the problem has no such size.
        """

        def submitted() -> Any:
            # A problem's first grade may search for a small size, and a worker takes seconds to start.
            try:
                return self._grader(_GraderKind(size, profiled)).submit_with(problem, source, on_stage=on_stage)
            except ProblemNotFound as error:  # Its hint names commands, which the agent may lack.
                raise ProblemNotFound(problem[:80], error.nearest, _LISTED) from error

        return await asyncio.wrap_future(await asyncio.to_thread(submitted))

    def close(self) -> None:
        """End all workers and unfinished grades."""
        with self._starting:
            self._closed = True
            for kind in self._started:
                self._graders[kind].close()
            self._started.clear()

    def _grader(self, kind: _GraderKind) -> Grader:
        with self._starting:
            if self._closed:
                raise UsageError("the session has ended", hint="start `warpgrade mcp` again")
            if kind not in self._graders:
                self._graders[kind] = Grader(**self._options_of(kind))
            if kind not in self._started:
                self._graders[kind].start()
                self._started.add(kind)
            return self._graders[kind]

    def _options_of(self, kind: _GraderKind) -> dict[str, Any]:
        size = {} if kind.size is None else {"size": kind.size}
        return {**self._options, **size, **({"profile": ProfilerKind.TORCH} if kind.profiled else {})}

    def _has_profiler(self) -> bool:
        try:
            Grader(**self._options_of(_GraderKind(profiled=True)))
        except UsageError:  # the device has none
            return False
        return True
