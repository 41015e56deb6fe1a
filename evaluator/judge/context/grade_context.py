"""Context of a grade: facts, builders, runners and GPU session, shared by all stages."""

import contextlib
import gc
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import Self

import torch
from msgspec.structs import replace

from evaluator.cache.build_cache import BuildCache
from evaluator.compile.device_builders import DeviceBuilders, device_builders
from evaluator.compile.disassembly import read_machine_code
from evaluator.deadline import Deadline
from evaluator.errors import WarpgradeError
from evaluator.judge.clock.gpu_monitor import NO_WATCH, ClockWatch
from evaluator.judge.clock.gpu_session import GpuSession
from evaluator.judge.context.grade_facts import GradeFacts
from evaluator.judge.context.runner_factory import RunnerFactory
from evaluator.judge.runners.build_service import BuildBudget, BuildService, EmptyKernelService, ResourceUsageService
from evaluator.judge.runners.fork_servers import SandboxedTools, fork_server_for
from evaluator.judge.runners.machine_code_reader import Disassemble, MachineCodeReader
from evaluator.judge.runners.runner_pool import POOLED_RUNNERS, SpareChildren
from evaluator.judge.runners.speculative_build import SpeculativeBuild
from evaluator.judge.setup.distribution_mix import DistributionMix
from evaluator.judge.setup.grade_terms import GradeTerms
from evaluator.judge.setup.problem_setup import ProblemSetup, keep_memory, set_up_problem
from evaluator.judge.setup.seed_book import SeedBook
from evaluator.lint.messages import LookedAt, look_at
from evaluator.paths import cache_folder
from evaluator.protocol.frames import BuildRequest
from evaluator.records import Case, CaseName, MachineCode, SandboxFacts, SizeName
from evaluator.sandbox import ForkServer


class GradeContext(GradeFacts):
    """Context of a grade in the judge. A context manager: the exit ends all processes of the grade.

    A lasting context serves several submissions of a problem in turn (`turn_to`). Successive submissions share the fork
    server and the reference with its weights, but never inputs or a process. `gpu_session` is None without a GPU.
    """

    def __init__(
        self,
        terms: GradeTerms,
        source: str,
        seeds: SeedBook,
        *,
        fork_server: ForkServer | None = None,
        lasting: bool = False,
        speculative_build: SpeculativeBuild | None = None,
        gpu_session: GpuSession | None = None,
        deadline: Deadline | None = None,
    ) -> None:
        """Start the fork server unless given. Without a GPU, run the problem's own code meanwhile.

        `speculative_build` is for the text `source` only. `gpu_session` must be for the GPU of `terms`; the context
        closes the session, unless the session is lasting.
        """
        super().__init__(terms, source, seeds, deadline)
        self._speculative_build = speculative_build
        self.gpu_session = gpu_session
        self._predicted: Sequence[BuildRequest] = ()
        self._further_setups: dict[CaseName, ProblemSetup] = {}
        if terms.gpu is not None:
            _keep_tf32_out()
        self._owns_fork_server = fork_server is None
        self.fork_server = fork_server or fork_server_for(
            terms.device, terms.gpu and terms.gpu.uuid, terms.options.sandbox_mode, terms.threads
        )
        with ExitStack() as undo:
            undo.callback(self._end_processes)
            run_tool = SandboxedTools(self.fork_server, terms.device, lambda: self.deadline)
            cache = BuildCache(cache_folder())
            self._spare_children = SpareChildren(self.fork_server)
            self._device_builders = device_builders(
                terms.device,
                terms.gpu,
                run_tool,
                cache,
                terms.options.build_timeout_s,
                self._spare_children.spawn,
                for_many=lasting,
            )
            undo.callback(self._device_builders.close, self._end_processes)
            pooled_runners = POOLED_RUNNERS if lasting else 0
            if terms.gpu is not None and gpu_session is None:
                gpu_session = GpuSession(terms.gpu, self.fork_server, runner_pool=pooled_runners)
            self.gpu_session = gpu_session
            self.runners = RunnerFactory(self, self.fork_server, gpu_session, pooled_runners)
            self.build_services = BuildServices(
                self._device_builders,
                source,
                terms.options.build_timeout_s,
                speculative_build,
                None if terms.gpu is None else partial(read_machine_code, run_tool=run_tool, cache=cache),
            )
            if terms.gpu is None:
                self._set_up()
            undo.pop_all()

    def turn_to(self, source: str, seeds: SeedBook, deadline: Deadline | None = None) -> None:
        """Switch to a submission, with a `deadline`. `seeds` must have the first submission's weight seed."""
        self._use(source, seeds, deadline)
        self._predicted = ()
        self.build_services.turn_to(source)

    def refill(self) -> None:
        """Start the processes that the next grade of a lasting context takes. Raises JudgeFailed.

        On a GPU, runners are warmed during the checks instead, and nothing may start beside another grade's timing.
        """
        if self.gpu_session is None:
            self.runners.pool.refill()
            self._spare_children.refill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with ExitStack() as ending:
            # Background threads first: one that does not know of the end would report the death of its program.
            ending.callback(self._end_processes)
            ending.callback(self._device_builders.close, self._end_processes)
            ending.callback(self.build_services.close, self._end_processes)
            session = self.gpu_session
            if session is None or not session.lasting:  # Idle runners of a lasting session have read nothing.
                (self.runners.pool.close if session is None else session.close)()
            self._spare_children.close()
            if error is None:
                self._device_builders.wait()

    def _end_processes(self) -> None:
        """End all processes of the fork server, and a fork server of our own. A repeated call changes nothing.

        The idle runners of a lasting session stay, for the next problem.
        """
        session = self.gpu_session
        if self._owns_fork_server:
            self.fork_server.close()
        else:
            self.fork_server.end_all(session.runner_pool.children if session is not None and session.lasting else ())

    @property
    def sandbox(self) -> SandboxFacts:
        """Active sandbox layers, and the memory limits of a runner of the problem."""
        facts = self.fork_server.facts
        if self._setup is None:
            return facts
        limits = self.backend.limits
        return replace(facts, memory_bytes=limits.memory_bytes, held_bytes=limits.held_bytes)

    def lint(self) -> LookedAt:
        """Lint the submission's text in a sandboxed process, without executing the text."""
        if self._speculative_build is None:
            looked = look_at(self.source, self.terms.options.entries, self._spare_children.spawn)
        else:
            looked = self._speculative_build.looked_at()
        self._predicted = looked.builds
        return looked

    def make_headers(self) -> None:
        """Make what the builds of many submissions share, or wait for another process that does."""
        self._device_builders.make_headers()

    def build_ahead(self) -> None:
        """Build what the text requests, also in constructors, so that no compiler runs while the grade has the GPU."""
        self.build_services.build_ahead(self._predicted)

    def take_device(self) -> None:
        """Take the device for the rest of the grade. Wait for a GPU leased by another grade."""
        if self.gpu_session is None:
            return
        self.gpu_session.settle()
        if self._setup is None:
            self._set_up()
        elif self._speculative_build is None:  # A setup kept from an earlier submission: the monitor must start anew.
            self.gpu_session.start_monitor()
        keep_memory(self.setup.judge_bytes)  # An earlier grade may have released some memory.

    def settle(self) -> None:
        """End speculative builds, and wait for starting runners: nothing of the grade may run beside a timing."""
        self.build_services.end_speculative()
        self.runners.pool.settle()

    def warm_idle_runners(self) -> None:
        """Let idle runners, started beside the checks, make GPU contexts after the last timed call.

        A failure costs no finished verdict: the next grade starts runners, and reports a lasting failure.
        """
        if self.gpu_session is not None:
            with contextlib.suppress(WarpgradeError, OSError):
                self.runners.pool.warm()

    def begin_side(self) -> ClockWatch:
        """Return a watch of the GPU's clock for a side that begins now, after a pause if the GPU is hotter."""
        return NO_WATCH if self.gpu_session is None else self.gpu_session.monitor.begin_side()

    def may_set_up_early(self) -> bool:
        """Return whether the problem can be set up on the GPU before the submission is imported.

        The predicted builds must be complete. Beside a running compiler an early setup gains nothing, because the
        judge's compiler threads contend for Python's lock.
        """
        return (
            self._speculative_build is not None and self.gpu_session is not None and self._speculative_build.has_built()
        )

    def set_up_early(self) -> None:
        """Set up the problem if the GPU is ready. The GPU may still go to another grade that waits."""
        if self.gpu_session is None:
            return
        with self.gpu_session.kept() as usable:
            if usable:
                self._set_up()

    @contextlib.contextmanager
    def at(self, case: Case, *, is_hidden: bool) -> Iterator[None]:
        """Context in which the grade is at a further case of the problem, with the same builds and distributions."""
        terms, setup, seeds = self.terms, self.setup, self.seeds
        self.terms, self.seeds = terms.at(case, is_hidden=is_hidden), seeds.elsewhere()
        try:
            self.setup = self._setup_at(case, setup.distribution_mix)
            yield
        finally:
            self.terms, self.seeds = terms, seeds
            self.setup = setup
            gc.collect()  # The tensors of the case's reference: the next case may need their memory.

    def _setup_at(self, case: Case, mix: DistributionMix) -> ProblemSetup:
        """Set the problem up at a further case. On the CPU, a lasting context keeps the small sizes."""
        if (kept := self._further_setups.get(case.name)) is not None:
            return kept
        setup = set_up_problem(self.terms, self.seeds.weight, self._device_builders, mix)
        if self.terms.gpu is not None:
            keep_memory(setup.judge_bytes)
        elif case.name in (SizeName.SMALL, SizeName.AWKWARD):
            self._further_setups[case.name] = setup
        return setup

    def _set_up(self) -> None:
        self.setup = set_up_problem(self.terms, self.seeds.weight, self._device_builders)


def _keep_tf32_out() -> None:
    """Disable TF32 in the judge. By default, PyTorch lets cuDNN round the operands of convolutions."""
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False


class BuildServices:
    """Factory of build services. Each service is for one runner."""

    def __init__(
        self,
        device_builders: DeviceBuilders,
        source: str,
        build_timeout_s: float,
        speculative_build: SpeculativeBuild | None,
        disassemble: Disassemble | None = None,
    ) -> None:
        """Build the submission `source` with `device_builders`, or take builds from `speculative_build`.

        `disassemble` reads the machine code of the submission's libraries, on devices with such code.
        """
        self._machine_code = None if disassemble is None else MachineCodeReader(disassemble)
        self._device_builders = device_builders
        self._build_timeout_s = build_timeout_s
        self._speculative_build = speculative_build
        self.turn_to(source)

    def turn_to(self, source: str) -> None:
        """Switch to a submission, whose builds share a new budget."""
        self._source = source
        self._build_budget = self._new_budget()
        builder = self._device_builders.builder_of(source)
        self._builder = builder if self._speculative_build is None else self._speculative_build.in_front_of(builder)
        if self._machine_code is not None:
            self._machine_code.turn_to_next()

    def for_submission(self) -> BuildService:
        """Return a build service with the budget of the submission."""
        on_library = None if self._machine_code is None else self._machine_code.begin
        return BuildService(self._builder, self._build_budget, self._source, on_library)

    def build_ahead(self, requests: Sequence[BuildRequest]) -> None:
        """Build `requests` into the cache, within a budget of their own.

        A result has an effect only if the submission requests exactly the same build later.
        """
        on_library = None if self._machine_code is None else self._machine_code.begin
        ahead = BuildService(self._builder, self._new_budget(), self._source, on_library)
        for request in requests:
            _, library = ahead.serve(request)
            if library is not None:
                os.close(library)

    def for_source(self, source: str) -> BuildService:
        """Return a build service for `source`, with a budget of its own."""
        return BuildService(self._device_builders.builder_of(source), self._new_budget(), source)

    def with_empty_kernels(self, kernels: Collection[str] | None = None) -> EmptyKernelService:
        """Return a build service for the submission's libraries with empty kernels: all kernels, or only the named."""
        return EmptyKernelService(self._builder, self._new_budget(), kernels)

    def with_resource_usage(self) -> ResourceUsageService:
        """Return a build service that compiles everything again and reports the resource usage of each kernel."""
        return ResourceUsageService(self._builder, self._new_budget())

    def machine_code(self) -> MachineCode | None:
        """Wait for the machine code of all libraries of the submission; None on devices without machine code."""
        return None if self._machine_code is None else self._machine_code.result()

    def close(self, kill: Callable[[], None]) -> None:
        """End the reading of machine code; `kill` ends all running tools."""
        if self._machine_code is not None:
            self._machine_code.close(kill)

    def end_speculative(self) -> None:
        """End speculative builds that no request asked for."""
        if self._speculative_build is not None:
            self._speculative_build.end()

    def _new_budget(self) -> BuildBudget:
        return BuildBudget(self._build_timeout_s)
