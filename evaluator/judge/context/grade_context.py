"""Context of a grade: problem setup, builders, runners, seeds and GPU session, shared by all stages."""

import contextlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import torch
from msgspec.structs import replace

from evaluator.cache.build_cache import BuildCache, cache_folder
from evaluator.compile.device_builders import device_builders
from evaluator.deadline import Deadline
from evaluator.devices.gpu import GpuState
from evaluator.devices.memory import HostRegion, SharedMemory
from evaluator.devices.page import PAGE_BYTES
from evaluator.emulator.parsing.parse_in_sandbox import full_size_numbers
from evaluator.errors import SandboxUnavailable
from evaluator.judge.backend.device_backend import DeviceBackend
from evaluator.judge.backend.gpu_monitor import GpuMonitor
from evaluator.judge.backend.gpu_session import RUNNER_LIMITS, GpuSession
from evaluator.judge.reference.reference import Reference
from evaluator.judge.runners.build_budget import BuildBudget
from evaluator.judge.runners.build_service import BuildService
from evaluator.judge.runners.call_timeouts import CallTimeouts, call_timeouts
from evaluator.judge.runners.empty_kernel_service import EmptyKernelService
from evaluator.judge.runners.fork_servers import fork_server_for
from evaluator.judge.runners.resource_usage_service import ResourceUsageService
from evaluator.judge.runners.runner_client import RUNNER, RunnerClient
from evaluator.judge.runners.runner_pool import POOLED_RUNNERS, RunnerPool
from evaluator.judge.runners.sandboxed_tools import SandboxedTools
from evaluator.judge.runners.speculative_build import SpeculativeBuild
from evaluator.judge.setup.distribution_mix import AS_GIVEN_ALONE
from evaluator.judge.setup.problem_setup import ProblemSetup, keep_memory, set_up_problem
from evaluator.judge.setup.seed_book import SeedBook
from evaluator.judge.setup.terms import Terms
from evaluator.judge.trial.model_runner import ModelRunner, ModelSpec, import_timeout_s, load_frame
from evaluator.lint.lint_in_sandbox import look_at
from evaluator.records import DeviceKind, Fault, Finding, RunnerOutput, SandboxFacts, SizeName
from evaluator.sandbox import Child, ConfinedProcess, ForkServer, Limits, ToolResult, run_tool


class GradeContext:
    """Context of a grade in the judge. A context manager: the exit ends all processes of the grade.

    A lasting context serves several submissions of a problem in turn (`turn_to`). Successive submissions share the fork
    server and the reference with its weights, but never inputs or a process.
    """

    def __init__(
        self,
        terms: Terms,
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
        closes the session.
        """
        self.terms = terms
        self.seeds = seeds
        self._distribution_mix = AS_GIVEN_ALONE
        self._speculative_build = speculative_build
        if terms.gpu is not None:
            _keep_tf32_out()
        self._lent = fork_server is not None
        self._fork_server = fork_server or fork_server_for(
            terms.device, terms.gpu and terms.gpu.uuid, terms.options.sandbox_mode, terms.threads
        )
        self.deadline = Deadline() if deadline is None else deadline
        self._run_tool = SandboxedTools(self._fork_server, terms.device, lambda: self.deadline)
        try:
            self._device_builders = device_builders(
                terms.device,
                terms.gpu,
                self._run_tool,
                BuildCache(cache_folder()),
                terms.options.build_timeout_s,
                self._spawn,
            )
            self._ready: ProblemSetup | None = None
            count = POOLED_RUNNERS if lasting else 0
            if terms.gpu is not None and gpu_session is None:
                gpu_session = GpuSession(terms.gpu, self._fork_server, runner_pool=count)
            self._gpu_session = gpu_session
            self.runner_pool = (
                gpu_session.runner_pool if gpu_session else RunnerPool(self._empty_runner, terms.device, count)
            )
            self.turn_to(source, seeds, deadline)
            if terms.gpu is None:
                self._take_over(self._get_ready())
        except BaseException:
            self._end_starter()
            raise

    def turn_to(self, source: str, seeds: SeedBook, deadline: Deadline | None = None) -> None:
        """Switch to a submission, with a `deadline`. `seeds` must have the first submission's weight seed."""
        self.deadline = Deadline() if deadline is None else deadline
        self.source = source
        self.seeds = seeds
        self.seeds.settle(self._distribution_mix)
        self.output = RunnerOutput(total_bytes=0, text="")
        self._build_budget = BuildBudget(self.terms.options.build_timeout_s)
        builder = self._device_builders.builder_of(source)
        self._builder = builder if self._speculative_build is None else self._speculative_build.in_front_of(builder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            (self.runner_pool.close if self._gpu_session is None else self._gpu_session.close)()
            if error is None:
                self._device_builders.wait()
        finally:
            self._end_starter()
            self._device_builders.close(self._fork_server.end_all)

    def _end_starter(self) -> None:
        """End all processes of the fork server, and a fork server of our own."""
        if self._lent:
            self._fork_server.end_all()
        else:
            self._fork_server.close()

    @property
    def sandbox(self) -> SandboxFacts:
        """Active sandbox layers, and the memory limits of a runner of the problem."""
        facts = self._fork_server.facts
        if self._ready is None:
            return facts
        limits = self.backend.limits
        return replace(facts, memory_bytes=limits.memory_bytes, held_bytes=limits.held_bytes)

    @property
    def reference(self) -> Reference:
        """Reference of the problem, on the grade's device."""
        return self._had().reference

    @property
    def backend(self) -> DeviceBackend:
        """Backend of the device: memory, clock, comparison and runner limits."""
        return self._had().backend

    def _had(self) -> ProblemSetup:
        if self._ready is None:
            raise RuntimeError("the device is not at hand: see have_device")
        return self._ready

    @property
    def kernels(self) -> bytes | None:
        """Cubin of the judge's own kernels for the GPU of the grade."""
        return self._device_builders.kernels

    def reach_for_device(self) -> None:
        """Start to create GPU contexts during the submission's build, unless another grade waits for the GPU."""
        if self._gpu_session is not None and self._ready is None:
            self._gpu_session.reach()

    def have_device(self) -> None:
        """Take the device for the rest of the grade. Wait for a GPU leased by another grade."""
        if self._gpu_session is None:
            return
        self._gpu_session.settle()
        if self._ready is None:
            self._take_over(self._get_ready())
        elif self._speculative_build is None:  # A setup kept from an earlier submission: the monitor must start anew.
            self._gpu_session.begin_watch()
        keep_memory(self._had().judge_bytes)  # An earlier grade may have released some memory.

    def may_get_ahead(self) -> bool:
        """Return whether the problem can be set up on the GPU before the submission is imported.

        The predicted builds must be complete. Beside a running compiler an early setup gains nothing, because the
        judge's compiler threads contend for Python's lock.
        """
        return (
            self._speculative_build is not None
            and self._gpu_session is not None
            and self._speculative_build.has_built()
        )

    def get_ahead(self) -> None:
        """Set up the problem if the GPU is ready. The GPU may still go to another grade that waits."""
        if self._gpu_session is None:
            return
        with self._gpu_session.standing() as stands:
            if stands:
                self._take_over(self._get_ready())

    @property
    def watch(self) -> GpuMonitor | None:
        """Monitor of the GPU during the grade."""
        return None if self._gpu_session is None else self._gpu_session.watch

    def count_as_ours(self, process: ConfinedProcess) -> None:
        """Count a runner that outlives one submission among the judge's own processes on the GPU."""
        if self._gpu_session is not None:
            self._gpu_session.count_as_ours(process.members())

    def _get_ready(self) -> ProblemSetup:
        return set_up_problem(self.terms, self.seeds.weight, self._device_builders)

    def _take_over(self, ready: ProblemSetup) -> None:
        """Install a problem setup."""
        self._ready = ready
        self._distribution_mix = ready.distribution_mix
        self.seeds.settle(ready.distribution_mix)

    @property
    def call_timeout_s(self) -> float:
        """Time limit in seconds of any call except a runner's first."""
        return self.deadlines(self.source).call_s

    def deadlines(self, source: str) -> CallTimeouts:
        """Return the time limits for calls of `source`."""
        return call_timeouts(source, self.terms.device, self._had().reference_s, self.terms.options.timeout_s)

    def look(self) -> GpuState | None:
        """Read the state of the GPU, if any, while still warm from the calls of a side."""
        return None if self.watch is None else self.watch.look()

    def recall(self, look: GpuState | None) -> None:
        """Record the GPU's state at the end of an earlier measurement that is reused for the grade."""
        if self.watch is not None and look is not None:
            self.watch.recall(look)

    def lint(self) -> list[Finding]:
        """Lint the submission's text in a sandboxed process, without executing the text."""
        return (
            look_at(self.source, self._fork_server).findings
            if self._speculative_build is None
            else self._speculative_build.remarks()
        )

    def full_size_numbers(self) -> list[tuple[int, int]]:
        """Return numbers of the problem's full size in the submission, with lines; a sandboxed process parses."""
        sizes = self.terms.problem.sizes
        return full_size_numbers(self.source, sizes[SizeName.FULL], sizes[self.terms.size], self._spawn)

    def _spawn(self, entry: str, limits: Limits) -> Child:
        return self._fork_server.spawn(entry, limits=limits)

    def end_early(self) -> None:
        """End speculative builds that no request asked for."""
        if self._speculative_build is not None:
            self._speculative_build.end()

    def insist_on_walls(self) -> None:
        """Raise SandboxUnavailable if a sandbox layer is missing under `--strict`."""
        if self.terms.options.strict and (missing := self._fork_server.facts.missing):
            raise SandboxUnavailable(
                f"--strict requires every layer of the sandbox, but this machine lacks {', '.join(missing)}",
                hint="`warpgrade doctor` says how to get the layers; without --strict the card lists what is missing",
            )

    def build_service(self, source: str | None = None) -> BuildService:
        """Return a build service for one runner: of the submission, or of another `source`."""
        if source is None:
            return BuildService(self._builder, self._build_budget, self.source)
        return BuildService(
            self._device_builders.builder_of(source), BuildBudget(self.terms.options.build_timeout_s), source
        )

    def idle_desk(self, kernels: Collection[str] | None = None) -> EmptyKernelService:
        """Return a build service for libraries with empty kernels: all kernels, or only the named."""
        return EmptyKernelService(self._builder, BuildBudget(self.terms.options.build_timeout_s), kernels)

    def profiling_desk(self) -> ResourceUsageService:
        """Return a build service that compiles everything again and reports the resource usage of each kernel."""
        return ResourceUsageService(self._builder, BuildBudget(self.terms.options.build_timeout_s))

    def read_in(self, build_service: BuildService) -> Fault | None:
        """Import the submission in a runner, then end the runner. Builds for a GPU need no GPU memory.

        With a GPU, a plain process replaces a pooled runner: the pool may still be creating GPU contexts.
        """
        if self.terms.gpu is None:
            with self.runner(self.source, build_service) as place:
                return place.load()
        with (
            contextlib.closing(HostRegion(PAGE_BYTES)) as inputs,
            contextlib.closing(HostRegion(PAGE_BYTES)) as outputs,
            RunnerClient(self._fork_server.spawn(RUNNER), build_service) as session,
        ):
            session.under(lambda: self.deadline, own=True)
            memory = SharedMemory(inputs, outputs, PAGE_BYTES, None, 0)
            frame = load_frame(self.terms, self.source, memory, DeviceKind.CPU)
            try:
                return session.load(frame, memory.descriptors, timeout_s=import_timeout_s(self.terms))
            finally:
                session.farewell()
                session.child.kill()
                self.output = session.child.output()

    @contextlib.contextmanager
    def runner(self, source: str, build_service: BuildService | None = None) -> Iterator[ModelRunner]:
        """Start a runner for `source`. At the exit of the context, all its processes are dead."""
        backend = self.backend
        with backend.memory() as memory, self.runner_pool.take() as session, backend.clock(session, memory) as clock:
            session.serve_from(build_service)
            session.under(lambda: self.deadline, own=source is self.source)
            try:
                yield ModelRunner(self._spec(), source, session, memory, clock)
            finally:
                if source is self.source:
                    session.farewell()
                session.child.kill()
                if source is self.source:
                    self.output = session.child.output()

    def _spec(self) -> ModelSpec:
        """Return the facts that a runner needs to construct models of the grade."""
        reference, reference_s = self.reference, self._had().reference_s
        return ModelSpec(
            self.terms, reference, reference_s, self.seeds.weight, self.seeds.distribution_mix, self.backend.compare
        )

    def _empty_runner(self) -> RunnerClient:
        """Start a runner without submission and without GPU."""
        return RunnerClient(self._fork_server.spawn(RUNNER, limits=self.backend.limits), None)

    def run_on_gpu(
        self, argv: Sequence[str], *, work: Path, timeout_s: float, kept_output_bytes: int, readable: Sequence[Path]
    ) -> ToolResult:
        """Run a program in a runner's sandbox, with access to the GPU of the grade; only `work` is writable.

        Raises JudgeFailed if the program cannot start.
        """
        if self.terms.gpu is None:
            raise RuntimeError("this grade has no GPU")
        return run_tool(
            self._fork_server,
            argv,
            work=work,
            timeout_s=self.deadline.within(timeout_s),
            limits=replace(RUNNER_LIMITS, kept_output_bytes=kept_output_bytes),
            readable=readable,
            devices=self.terms.gpu.nodes,
            environment={"HOME": str(work), "TMPDIR": str(work)},
        )


def _keep_tf32_out() -> None:
    """Disable TF32 in the judge. By default, PyTorch lets cuDNN round the operands of convolutions."""
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
