"""Grades of a server's session: workers start with the first grade, and end with the session."""

import asyncio
import difflib
import threading
from collections.abc import Mapping
from typing import Any

from evaluator.api.grader import Grader
from evaluator.api.scorecard import Scorecard
from evaluator.catalog import Listing, list_problems
from evaluator.errors import ProblemNotFound, UsageError
from evaluator.records import Problem, ProfilerKind

_LISTED = "the tool `problems` without a name lists all"


class Session:
    """Problems and grades under the terms that the user chose. An agent chooses problem and submission only."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Read the options of all grades.

        Raises:
            UsageError: an option is invalid.
            InfraError: the machine has no GPU.
        """
        self._options = dict(options)
        self._folder = options.get("problems")
        self._starting = threading.Lock()
        self._closed = False
        self._graders: dict[bool, Grader] = {False: Grader(**self._options)}
        self._started: set[bool] = set()

    def listing(self) -> Listing:
        """Return all problems. Raises ProblemError if the folder does not exist."""
        return list_problems(self._folder)

    def problem(self, name: str) -> Problem:
        """Return a problem by its exact name: a name of an agent is no path.

        Raises:
            ProblemNotFound: no problem has the name.
        """
        problems = {each.name: each for each in self.listing().problems}
        if name not in problems:
            near = difflib.get_close_matches(name, problems, n=3)
            raise ProblemNotFound(name[:80], near, _LISTED)
        return problems[name]

    async def grade(self, problem: str, source: str, *, profiled: bool = False) -> Scorecard:
        """Grade a submission without blocking the event loop.

        Raises:
            ProblemNotFound: no problem has the name.
            UsageError: the device has no profiler.
        """

        def submitted() -> Any:
            # A problem's first grade may search for a small size, and a worker takes seconds to start.
            try:
                return self._grader(profiled=profiled).submit(problem, source)
            except ProblemNotFound as error:  # Its hint names commands, which the agent may lack.
                raise ProblemNotFound(problem[:80], error.nearest, _LISTED) from error

        return await asyncio.wrap_future(await asyncio.to_thread(submitted))

    def close(self) -> None:
        """End all workers and unfinished grades."""
        with self._starting:
            self._closed = True
            for profiled in self._started:
                self._graders[profiled].close()
            self._started.clear()

    def _grader(self, *, profiled: bool) -> Grader:
        with self._starting:
            if self._closed:
                raise UsageError("the session has ended", hint="start `warpgrade mcp` again")
            if profiled not in self._graders:
                self._graders[profiled] = self._profiler()
            if profiled not in self._started:
                self._graders[profiled].start()
                self._started.add(profiled)
            return self._graders[profiled]

    def _profiler(self) -> Grader:
        try:
            return Grader(**{**self._options, "profile": ProfilerKind.TORCH})
        except UsageError as error:
            hint = "a profile needs a server on cuda or cpu: `warpgrade mcp --device cuda`; use `grade` meanwhile"
            raise UsageError(error.message, hint=hint) from error
