"""What all stages of one grade share: the problem's reference, the builder, and the making of runners."""

import contextlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import torch
from msgspec.structs import replace

from evaluator.build.cache import BuildCache, cache_folder
from evaluator.build.equipment import equipment
from evaluator.deadline import Deadline
from evaluator.devices.gpu import GpuState
from evaluator.devices.memory import HostRegion, SharedMemory
from evaluator.devices.page import PAGE_BYTES
from evaluator.emulator.rehearsal import full_size_numbers
from evaluator.errors import SandboxUnavailable
from evaluator.isolation import Child, ConfinedProcess, Limits, Starter, ToolResult, run_tool
from evaluator.judge.deadlines import Deadlines, deadlines
from evaluator.judge.desk import BuildDesk
from evaluator.judge.early import Early
from evaluator.judge.foothold import RUNNER_LIMITS, Foothold
from evaluator.judge.idle_desk import IdleDesk
from evaluator.judge.ledger import BuildLedger
from evaluator.judge.mixture import AS_GIVEN_ALONE
from evaluator.judge.place import ModelSpec, Place, import_timeout_s, load_frame
from evaluator.judge.ready import Ready, get_ready, keep_memory
from evaluator.judge.reference import Reference
from evaluator.judge.resource_desk import ResourceDesk
from evaluator.judge.rig import Rig
from evaluator.judge.seeds import SeedBook
from evaluator.judge.session import RUNNER, Session
from evaluator.judge.spares import SPARES, Spares
from evaluator.judge.starting import starter_for
from evaluator.judge.terms import Terms
from evaluator.judge.tools import Tools
from evaluator.judge.watch import Watch
from evaluator.lint.ask import look_at
from evaluator.records import DeviceKind, Fault, Finding, RunnerOutput, SandboxFacts, SizeName


class Workshop:
    """The judge's side of a grade. A context manager: leaving it ends every process that was started.

    A lasting one serves several submissions of a problem, one after the other (`turn_to`): they share the starter and
    the reference with its weights. They never share inputs, or a process.
    """

    def __init__(
        self,
        terms: Terms,
        source: str,
        seeds: SeedBook,
        *,
        starter: Starter | None = None,
        lasting: bool = False,
        early: Early | None = None,
        foothold: Foothold | None = None,
        deadline: Deadline | None = None,
    ) -> None:
        """Start the starter, unless one is lent. Without a GPU the problem's own code is run while that gets ready.

        `early` is what was begun ahead of the one submission with the text `source`; `foothold`, which is closed here,
        has the GPU of these terms.
        """
        self.terms = terms
        self.seeds = seeds
        self._mixture = AS_GIVEN_ALONE
        self._early = early
        if terms.gpu is not None:
            _keep_tf32_out()
        self._lent = starter is not None
        self._starter = starter or starter_for(
            terms.device, terms.gpu and terms.gpu.uuid, terms.options.sandbox_mode, terms.threads
        )
        self.deadline = Deadline() if deadline is None else deadline
        self._run_tool = Tools(self._starter, terms.device, lambda: self.deadline)
        try:
            self._equipment = equipment(
                terms.device,
                terms.gpu,
                self._run_tool,
                BuildCache(cache_folder()),
                terms.options.build_timeout_s,
                self._spawn,
            )
            self._ready: Ready | None = None
            count = SPARES if lasting else 0
            if terms.gpu is not None and foothold is None:
                foothold = Foothold(terms.gpu, self._starter, spares=count)
            self._foothold = foothold
            self.spares = foothold.spares if foothold else Spares(self._empty_runner, terms.device, count)
            self.turn_to(source, seeds, deadline)
            if terms.gpu is None:
                self._take_over(self._get_ready())
        except BaseException:
            self._end_starter()
            raise

    def turn_to(self, source: str, seeds: SeedBook, deadline: Deadline | None = None) -> None:
        """Take a submission in hand, until its `deadline`. `seeds` has the weights' seed of the first one's."""
        self.deadline = Deadline() if deadline is None else deadline
        self.source = source
        self.seeds = seeds
        self.seeds.settle(self._mixture)
        self.output = RunnerOutput(total_bytes=0, text="")
        self._ledger = BuildLedger(self.terms.options.build_timeout_s)
        builder = self._equipment.builder_of(source)
        self._builder = builder if self._early is None else self._early.in_front_of(builder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            (self.spares.close if self._foothold is None else self._foothold.close)()
            if error is None:
                self._equipment.wait()
        finally:
            self._end_starter()
            self._equipment.close(self._starter.end_all)

    def _end_starter(self) -> None:
        """End what it started; and the starter itself, unless it was lent."""
        if self._lent:
            self._starter.end_all()
        else:
            self._starter.close()

    @property
    def sandbox(self) -> SandboxFacts:
        """Say which walls stand, and what a runner of this problem may take."""
        facts = self._starter.facts
        if self._ready is None:
            return facts
        limits = self.rig.limits
        return replace(facts, memory_bytes=limits.memory_bytes, held_bytes=limits.held_bytes)

    @property
    def reference(self) -> Reference:
        """The problem's reference, on its device."""
        return self._had().reference

    @property
    def rig(self) -> Rig:
        """What the device brings."""
        return self._had().rig

    def _had(self) -> Ready:
        if self._ready is None:
            raise RuntimeError("the device is not at hand: see have_device")
        return self._ready

    @property
    def kernels(self) -> bytes | None:
        """The judge's own kernels, a cubin for the GPU of this grade."""
        return self._equipment.kernels

    def reach_for_device(self) -> None:
        """Have contexts made on the GPU while the submission is being built, if nobody else wants it meanwhile."""
        if self._foothold is not None and self._ready is None:
            self._foothold.reach()

    def have_device(self) -> None:
        """Have the device, to the end. A GPU that another grade has is waited for here."""
        if self._foothold is None:
            return
        self._foothold.settle()
        if self._ready is None:
            self._take_over(self._get_ready())
        elif self._early is None:  # The problem is of a submission before this one, and so is the watch.
            self._foothold.begin_watch()
        keep_memory(self._had().judge_bytes)  # A grade before this one may have given some of it back.

    def may_get_ahead(self) -> bool:
        """Say whether the problem can be got ready on a GPU before the submission is read in.

        Where the builds that its text foresees are there: beside a compiler nothing is gained, for the threads that run
        it wait for Python's lock.
        """
        return self._early is not None and self._foothold is not None and self._early.has_built()

    def get_ahead(self) -> None:
        """Get the problem ready, if the GPU is at hand. It may still be given to somebody who waits for it."""
        if self._foothold is None:
            return
        with self._foothold.standing() as stands:
            if stands:
                self._take_over(self._get_ready())

    @property
    def watch(self) -> Watch | None:
        """What is seen of the GPU during this grade."""
        return None if self._foothold is None else self._foothold.watch

    def count_as_ours(self, process: ConfinedProcess) -> None:
        """Take note of a runner that stays on the GPU from one submission to the next."""
        if self._foothold is not None:
            self._foothold.count_as_ours(process.members())

    def _get_ready(self) -> Ready:
        return get_ready(self.terms, self.seeds.weight, self._equipment)

    def _take_over(self, ready: Ready) -> None:
        """Go on with what was got ready."""
        self._ready = ready
        self._mixture = ready.mixture
        self.seeds.settle(ready.mixture)

    @property
    def call_timeout_s(self) -> float:
        """Say how long a call may take that is not a runner's first."""
        return self.deadlines(self.source).call_s

    def deadlines(self, source: str) -> Deadlines:
        """Say how long calls of `source` may take."""
        return deadlines(source, self.terms.device, self._had().reference_s, self.terms.options.timeout_s)

    def look(self) -> GpuState | None:
        """Look at the GPU, if there is one, while it is warm from a side's calls."""
        return None if self.watch is None else self.watch.look()

    def recall(self, look: GpuState | None) -> None:
        """Take in how the GPU was at the end of a side that counts for this grade too."""
        if self.watch is not None and look is not None:
            self.watch.recall(look)

    def lint(self) -> list[Finding]:
        """Look at the submission's text, in a confined child that runs nothing of it."""
        return look_at(self.source, self._starter).findings if self._early is None else self._early.remarks()

    def full_size_numbers(self) -> list[tuple[int, int]]:
        """List the numbers of the problem's full size in the submission's text, with their lines: a child reads it."""
        sizes = self.terms.problem.sizes
        return full_size_numbers(self.source, sizes[SizeName.FULL], sizes[self.terms.size], self._spawn)

    def _spawn(self, entry: str, limits: Limits) -> Child:
        return self._starter.spawn(entry, limits=limits)

    def end_early(self) -> None:
        """End what was begun ahead and that nobody asked for."""
        if self._early is not None:
            self._early.end()

    def insist_on_walls(self) -> None:
        """Refuse to grade where a wall is missing and every one was asked for. Raises SandboxUnavailable."""
        if self.terms.options.strict and (missing := self._starter.facts.missing):
            raise SandboxUnavailable(
                f"--strict requires every layer of the sandbox, but this machine lacks {', '.join(missing)}",
                hint="`warpgrade doctor` says how to get the layers; without --strict the card lists what is missing",
            )

    def desk(self, source: str | None = None) -> BuildDesk:
        """Open a desk for the build requests of one runner: of the submission, or of another `source`."""
        if source is None:
            return BuildDesk(self._builder, self._ledger, self.source)
        return BuildDesk(self._equipment.builder_of(source), BuildLedger(self.terms.options.build_timeout_s), source)

    def idle_desk(self, kernels: Collection[str] | None = None) -> IdleDesk:
        """Open a desk whose libraries have kernels that end at once: all, or those of these names."""
        return IdleDesk(self._builder, BuildLedger(self.terms.options.build_timeout_s), kernels)

    def profiling_desk(self) -> ResourceDesk:
        """Open a desk that has the compiler say what each kernel takes: all is compiled once more."""
        return ResourceDesk(self._builder, BuildLedger(self.terms.options.build_timeout_s))

    def read_in(self, desk: BuildDesk) -> Fault | None:
        """Have a runner read the submission in, and end. For a GPU's extensions that needs none of its memory.

        Nor is it one of those that were made ahead for the GPU: they may be in the making.
        """
        if self.terms.gpu is None:
            with self.runner(self.source, desk) as place:
                return place.load()
        with (
            contextlib.closing(HostRegion(PAGE_BYTES)) as inputs,
            contextlib.closing(HostRegion(PAGE_BYTES)) as outputs,
            Session(self._starter.spawn(RUNNER), desk) as session,
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
    def runner(self, source: str, desk: BuildDesk | None = None) -> Iterator[Place]:
        """Start a runner for `source`; every process of it is dead when the context is left."""
        rig = self.rig
        with rig.memory() as memory, self.spares.take() as session, rig.clock(session, memory) as clock:
            session.serve_from(desk)
            session.under(lambda: self.deadline, own=source is self.source)
            try:
                yield Place(self._spec(), source, session, memory, clock)
            finally:
                if source is self.source:
                    session.farewell()
                session.child.kill()
                if source is self.source:
                    self.output = session.child.output()

    def _spec(self) -> ModelSpec:
        """Settle how models are made in a runner, by what is known of this grade."""
        reference, reference_s = self.reference, self._had().reference_s
        return ModelSpec(self.terms, reference, reference_s, self.seeds.weight, self.seeds.mixture, self.rig.compare)

    def _empty_runner(self) -> Session:
        """Start a runner with nothing of a submission in it, and no GPU."""
        return Session(self._starter.spawn(RUNNER, limits=self.rig.limits), None)

    def run_on_gpu(
        self, argv: Sequence[str], *, work: Path, timeout_s: float, kept_output_bytes: int, readable: Sequence[Path]
    ) -> ToolResult:
        """Run a program behind a runner's walls, where it sees the GPU of this grade and writes into `work` alone.

        Raises JudgeFailed if it cannot be started.
        """
        if self.terms.gpu is None:
            raise RuntimeError("this grade has no GPU")
        return run_tool(
            self._starter,
            argv,
            work=work,
            timeout_s=self.deadline.within(timeout_s),
            limits=replace(RUNNER_LIMITS, kept_output_bytes=kept_output_bytes),
            readable=readable,
            devices=self.terms.gpu.nodes,
            environment={"HOME": str(work), "TMPDIR": str(work)},
        )


def _keep_tf32_out() -> None:
    """Have the judge compute in true fp32; PyTorch's default lets cuDNN round the operands of convolutions."""
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
