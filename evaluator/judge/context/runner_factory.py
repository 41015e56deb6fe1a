"""Factory of the runner processes of a grade."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from evaluator.devices.memory import PAGE_BYTES, HostRegion, SharedMemory
from evaluator.judge.clock.gpu_session import RUNNER_LIMITS, GpuSession
from evaluator.judge.context.grade_facts import GradeFacts
from evaluator.judge.runners.build_service import BuildService
from evaluator.judge.runners.runner_client import RUNNER, RunnerClient
from evaluator.judge.runners.runner_pool import RunnerPool
from evaluator.judge.trial.model_runner import ModelRunner, ModelSpec, import_timeout_s, load_frame
from evaluator.records import DeviceKind, Fault
from evaluator.sandbox import ForkServer, Limits, ToolResult, run_tool
from evaluator.submission.model_new import NAME


class RunnerFactory:
    """Starts runners for the submission, the reference and baselines. `pool` has the runners without code."""

    def __init__(
        self, facts: GradeFacts, fork_server: ForkServer, gpu_session: GpuSession | None, pooled_runners: int = 0
    ) -> None:
        """Start runners from `fork_server`, or take the runners of the session's pool.

        Without a GPU, the pool replaces taken runners up to `pooled_runners`.
        """
        self._facts = facts
        self._fork_server = fork_server
        self._pooled_limits: Limits | None = None
        self.pool = (
            RunnerPool(self._empty_runner, facts.terms.device, pooled_runners)
            if gpu_session is None
            else gpu_session.runner_pool
        )

    @contextlib.contextmanager
    def start(
        self, source: str, build_service: BuildService | None = None, *, trusted: bool = False
    ) -> Iterator[ModelRunner]:
        """Start a runner for `source`. At the exit of the context, all its processes are dead.

        A `trusted` source is a form of the reference, and defines ModelNew in every grade. Time and output count for
        the grade if `source` is the submission, the same object as `GradeFacts.source`.
        """
        facts, backend = self._facts, self._facts.backend
        is_submission = source is facts.source
        if self._pooled_limits not in (None, backend.limits):
            self.pool.close()  # The idle runners are for another case.
        with contextlib.ExitStack() as stack:
            memory = stack.enter_context(backend.memory())
            session = stack.enter_context(self.pool.take())
            clock = stack.enter_context(backend.clock(session, memory))
            session.serve_from(build_service)
            session.under(lambda: facts.deadline, is_submission=is_submission, in_cpu_time=facts.terms.gpu is None)
            try:
                yield ModelRunner(
                    self._spec(),
                    source,
                    session,
                    memory,
                    clock,
                    kernel_cache=facts.kernel_cache if is_submission else b"",
                    seeded_because=facts.seeded_because if is_submission else None,
                    in_training=is_submission and facts.in_training,
                    entries=(NAME,) if trusted else facts.terms.options.entries,
                    trusted=trusted,
                )
            finally:
                if is_submission:
                    session.farewell()
                session.child.kill()
                if is_submission:
                    facts.output = session.child.output()
                stack.close()

    def import_submission(self, build_service: BuildService) -> Fault | None:
        """Import the submission in a runner, then end the runner. Builds for a GPU need no GPU memory.

        With a GPU, a plain process replaces a pooled runner: the pool may still be creating GPU contexts.
        """
        facts = self._facts
        if facts.terms.gpu is None:
            with self.start(facts.source, build_service) as model_runner:
                return model_runner.load()
        with (
            contextlib.closing(HostRegion(PAGE_BYTES)) as inputs,
            contextlib.closing(HostRegion(PAGE_BYTES)) as outputs,
            RunnerClient(self._fork_server.spawn(RUNNER), build_service) as session,
        ):
            session.under(lambda: facts.deadline, is_submission=True, in_cpu_time=False)
            memory = SharedMemory(inputs, outputs, PAGE_BYTES, None, 0)
            frame = load_frame(facts.terms, facts.source, memory, DeviceKind.CPU)
            try:
                return session.load(frame, memory.descriptors, timeout_s=import_timeout_s(facts.terms))
            finally:
                session.farewell()
                session.child.kill()
                facts.output = session.child.output()

    def run_on_gpu(
        self, argv: Sequence[str], *, work: Path, timeout_s: float, kept_output_bytes: int, readable: Sequence[Path]
    ) -> ToolResult:
        """Run a program in a runner's sandbox, with access to the GPU of the grade; only `work` is writable.

        Raises JudgeFailed if the program cannot start.
        """
        facts = self._facts
        if facts.terms.gpu is None:
            raise RuntimeError("this grade has no GPU")
        return run_tool(
            self._fork_server,
            argv,
            work=work,
            timeout_s=facts.deadline.within(timeout_s),
            limits=replace(RUNNER_LIMITS, kept_output_bytes=kept_output_bytes),
            readable=readable,
            devices=facts.terms.gpu.nodes,
            environment={"HOME": str(work), "TMPDIR": str(work)},
            in_cpu_time=False,
        )

    def _spec(self) -> ModelSpec:
        """Return the facts that a runner needs to construct models of the grade."""
        facts, setup = self._facts, self._facts.setup
        return ModelSpec(
            facts.terms,
            setup.reference,
            setup.reference_s,
            facts.seeds.weight,
            facts.seeds.distribution_mix,
            setup.backend.compare,
        )

    def _empty_runner(self) -> RunnerClient:
        """Start a runner without submission and without GPU."""
        self._pooled_limits = self._facts.backend.limits
        return RunnerClient(self._fork_server.spawn(RUNNER, self._pooled_limits), None)
