"""Speculative work of a single grade during the import of PyTorch: lint of the submission, and predicted builds.

Importing PyTorch takes longer than half a build. A fork server without PyTorch is ready long before, and runs the lint
and the builds predicted from the text. The running submission still sends its build requests. A speculative build is
used only for an equal request; unused builds are ended before timing.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from types import TracebackType
from typing import Self

from msgspec.structs import replace

from evaluator.compile.builder import BuildResult, RunTool
from evaluator.compile.device_builders import ExtensionBuilder
from evaluator.findings import Code
from evaluator.lint.messages import LookedAt, look_at
from evaluator.protocol.frames import BuildRequest
from evaluator.sandbox import ForkServer, Limits, ToolResult

_KILL_ROUND_S = 0.02
_AT_ONCE = 2
"""Each build uses several cores."""


class BuildEnded(Exception):
    """An unused speculative build was ended."""


class SpeculativeBuild:
    """Lint and predicted builds of one submission. A context manager: the exit ends all builds."""

    def __init__(
        self,
        fork_server: ForkServer,
        run_tool: RunTool,
        builder_of: Callable[[RunTool], ExtensionBuilder],
        source: str,
        entries: Sequence[str],
    ) -> None:
        """Start lint and builds in threads. `entries` are the names of the class of `source`.

        `run_tool` runs programs in `fork_server`, used for no other processes.
        """
        self._fork_server = fork_server
        self._run_tool = run_tool
        self._ended = False
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="speculative-build")
        self._builds: list[tuple[BuildRequest, Future[BuildResult]]] = []
        self._looked = self._threads.submit(self._look, source, entries, builder_of)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill()
        self._threads.shutdown()

    def looked_at(self) -> LookedAt:
        """Return the result of the lint. Raises JudgeFailed if the lint process could not start."""
        return self._looked.result()

    def in_front_of(self, builder: ExtensionBuilder) -> ExtensionBuilder:
        """Return a builder that answers from the speculative builds first, then from `builder`."""
        return _InFront(self, builder)

    def has_built(self) -> bool:
        """Return whether builds were predicted, and all have finished without a fault."""
        if not self._looked.done() or not self._builds:
            return False
        builds = [build for _, build in self._builds]
        return all(build.done() and build.exception() is None and build.result().finding is None for build in builds)

    def build_of(self, request: BuildRequest) -> BuildResult | None:
        """Wait for the build of an equal request; None if no build was started. Raises any exception of the build."""
        self._looked.result()
        matching_build = next((build for predicted, build in self._builds if predicted == request), None)
        if matching_build is None:
            return None
        try:
            built = matching_build.result()
        except Exception:
            if not self._ended:
                raise
            return None  # Ending a build can raise any exception.
        # Time-outs are not final: another speculative build may have used the cores.
        late = built.finding is not None and built.finding.code == Code.COMPILER_TIMED_OUT.value
        return None if late else built

    def end(self) -> None:
        """End the unused builds, since no build may run during timing. The lint runs to completion."""
        wait([self._looked])
        self._kill()

    def _kill(self) -> None:
        self._ended = True
        while not self._are_done():
            # Kill repeatedly: a build may be about to start its next program.
            self._fork_server.condemn_all()

    def _are_done(self) -> bool:
        # The look first: builds start before the end of the look.
        if wait([self._looked], timeout=_KILL_ROUND_S).not_done:
            return False
        return not wait([build for _, build in self._builds], timeout=_KILL_ROUND_S).not_done

    def _look(self, source: str, entries: Sequence[str], builder_of: Callable[[RunTool], ExtensionBuilder]) -> LookedAt:
        looked = look_at(source, entries, self._fork_server.spawn)
        builder = builder_of(self._run_unless_ended)
        self._builds = [(request, self._threads.submit(builder.build, request)) for request in looked.builds]
        return looked

    def _run_unless_ended(
        self, argv: Sequence[str], *, work: Path, timeout_s: float, limits: Limits, readable: Sequence[Path] = ()
    ) -> ToolResult:
        """Run a program. Raises Ended after `end`: a killed program's output must not be cached as a build failure."""
        result = self._run_tool(argv, work=work, timeout_s=timeout_s, limits=limits, readable=readable)
        if self._ended:
            raise BuildEnded
        return result


class _InFront:
    """Builder that looks for a speculative build first."""

    def __init__(self, speculative_build: SpeculativeBuild, builder: ExtensionBuilder) -> None:
        self._speculative_build = speculative_build
        self._builder = builder
        self._given: list[BuildRequest] = []

    def build(self, request: BuildRequest) -> BuildResult:
        """Build one extension, or return the reason for the failure. A repeated request is reported as a cache hit."""
        built = self._speculative_build.build_of(request)
        if built is None:
            return self._builder.build(request)
        if request not in self._given:
            self._given.append(request)
            return built
        return replace(built, unit=replace(built.unit, cached=True, wall_s=0.0))
