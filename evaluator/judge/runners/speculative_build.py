"""What a grade has done while PyTorch is being imported: the submission looked at, and its builds begun.

Importing takes longer than half of a build. A starter without PyTorch is ready long before, so there the text is looked
at, and what the text says will be built is built. The submission still asks for its builds when it runs, and gets one
of these only where it asks for exactly the same; the others are ended before anything is timed.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from msgspec.structs import replace

from evaluator.compile.device_builders import ExtensionBuilder
from evaluator.compile.extension.build_result import BuildResult
from evaluator.compile.extension.builder import RunTool
from evaluator.findings import Code
from evaluator.lint.lint_in_sandbox import LookedAt, look_at
from evaluator.protocol.frames import BuildRequest
from evaluator.records import Finding
from evaluator.sandbox import ForkServer, Limits, ToolResult

_KILL_ROUND_S = 0.02
_AT_ONCE = 2
"""Each build takes several cores."""


class Ended(Exception):
    """A build that nobody asked for was ended."""


class SpeculativeBuild:
    """The look at one submission, and the builds that its text foresees. A context manager: leaving it ends them."""

    def __init__(
        self, fork_server: ForkServer, run_tool: RunTool, builder_of: Callable[[RunTool], ExtensionBuilder], source: str
    ) -> None:
        """Begin, in threads. `run_tool` runs programs as processes of `fork_server`, which has no others."""
        self._fork_server = fork_server
        self._run_tool = run_tool
        self._ended = False
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="early")
        self._builds: list[tuple[BuildRequest, Future[BuildResult]]] = []
        self._looked = self._threads.submit(self._look, source, builder_of)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill()
        self._threads.shutdown()

    def remarks(self) -> list[Finding]:
        """Say what was noticed of the text. Raises JudgeFailed where nobody could look at it."""
        return self._looked.result().findings

    def in_front_of(self, builder: ExtensionBuilder) -> ExtensionBuilder:
        """Give a builder that hands out what was begun here, and leaves the rest to `builder`."""
        return _InFront(self, builder)

    def has_built(self) -> bool:
        """Say whether the text foresees builds, and all of them are there by now, without a fault."""
        if not self._looked.done() or not self._builds:
            return False
        begun = [build for _, build in self._builds]
        return all(build.done() and build.exception() is None and build.result().finding is None for build in begun)

    def build_of(self, request: BuildRequest) -> BuildResult | None:
        """Wait for a build that was begun; None where this one was not. Raises what building raises."""
        self._looked.result()
        begun = next((build for asked, build in self._builds if asked == request), None)
        if begun is None:
            return None
        try:
            built = begun.result()
        except Exception:
            if not self._ended:
                raise
            return None  # It was ended, in one of many ways.
        # Another one that nobody asks for may have taken its time.
        late = built.finding is not None and built.finding.code == Code.COMPILER_TIMED_OUT.value
        return None if late else built

    def end(self) -> None:
        """End the builds that nobody asked for: none may run while calls are timed. The look comes to its own end."""
        wait([self._looked])
        self._kill()

    def _kill(self) -> None:
        self._ended = True
        while not self._are_done():
            # Again and again: a build may be about to start the next program.
            self._fork_server.condemn_all()

    def _are_done(self) -> bool:
        begun: list[Future[Any]] = [self._looked, *(build for _, build in self._builds)]
        return not wait(begun, timeout=_KILL_ROUND_S).not_done

    def _look(self, source: str, builder_of: Callable[[RunTool], ExtensionBuilder]) -> LookedAt:
        looked = look_at(source, self._fork_server)
        builder = builder_of(self._run_unless_ended)
        self._builds = [(request, self._threads.submit(builder.build, request)) for request in looked.builds]
        return looked

    def _run_unless_ended(
        self, argv: Sequence[str], *, work: Path, timeout_s: float, limits: Limits, readable: Sequence[Path] = ()
    ) -> ToolResult:
        """Run a program; what a killed one leaves is no result, and must not be remembered as a failure."""
        result = self._run_tool(argv, work=work, timeout_s=timeout_s, limits=limits, readable=readable)
        if self._ended:
            raise Ended
        return result


class _InFront:
    """A builder that first looks whether a build was begun early."""

    def __init__(self, speculative_build: SpeculativeBuild, builder: ExtensionBuilder) -> None:
        self._speculative_build = speculative_build
        self._builder = builder
        self._given: list[BuildRequest] = []

    def build(self, request: BuildRequest) -> BuildResult:
        """Build one extension, or say why not. One that is asked for again comes out of the cache."""
        built = self._speculative_build.build_of(request)
        if built is None:
            return self._builder.build(request)
        if request not in self._given:
            self._given.append(request)
            return built
        return replace(built, unit=replace(built.unit, cached=True, wall_s=0.0))
