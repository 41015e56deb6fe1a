"""What all stages of one grade share: the problem's reference, the builder, and the making of runners."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import torch
from msgspec.structs import replace

from evaluator.build.cache import BuildCache, cache_folder
from evaluator.build.equipment import equipment
from evaluator.devices.memory import Region, SharedMemory, room_for
from evaluator.emulator import headers
from evaluator.errors import ProblemError
from evaluator.frames import Construct, Constructed, Table
from evaluator.isolation import Limits, SandboxMode, Starter, ToolResult, run_tool
from evaluator.judge.desk import BuildDesk
from evaluator.judge.reference import Reference
from evaluator.judge.seeds import SeedBook
from evaluator.judge.session import Fault, Session
from evaluator.judge.trees import extent_bytes, place, tensors
from evaluator.judge.trial import Bench, fresh_seed
from evaluator.records import DeviceKind, Mode, Problem, RunnerOutput, SandboxFacts, SizeName, ToleranceRule

AS_REFERENCE = "from model import Model as ModelNew\n"
"""The reference, handed in as a submission: it is timed by the same code in the same kind of runner."""

_RUNNER = "evaluator.runner.main:run"
_IMPORT_TIMEOUT_S = 60.0
_CALL_TIMEOUT_S = 10.0
_REFERENCES_PER_TIMEOUT = 20.0
# Address space for torch, its threads and a submission's own memory, beside the tensors of the problem.
_RUNNER_BYTES = 16 << 30
# The allocator's arena holds outputs of two calls, gradients, weights and workspaces; its pages cost nothing unused.
_ARENA_FACTOR = 8


class Terms(NamedTuple):
    """What was asked for. `timeout_s` is for each stage of the submission; None leaves the choice to the judge."""

    problem: Problem
    device: DeviceKind
    size: SizeName
    tolerance: ToleranceRule
    sandbox: SandboxMode
    timeout_s: float | None
    build_timeout_s: float
    threads: int


class _CallSizes(NamedTuple):
    """What one call moves, and how long the reference takes for it in the judge."""

    input_bytes: int
    output_bytes: int
    reference_s: float


class Workshop:
    """The judge's side of one grade. A context manager: leaving it ends every process that was started."""

    def __init__(self, terms: Terms, source: str, seeds: SeedBook) -> None:
        """Start the starter, and run the problem's own code while it gets ready."""
        self.terms = terms
        self.source = source
        self.seeds = seeds
        self.output = RunnerOutput(total_bytes=0, text="")
        self._starter = Starter(mode=terms.sandbox, environment=_environment(terms.threads, terms.device))
        try:
            self.reference = Reference(terms.problem, terms.size, seeds.weight)
            self._sizes = self._try_one_call()
        except BaseException:
            self._starter.close()
            raise
        self._equipment = equipment(
            terms.device, self._run_tool, BuildCache(cache_folder()), source, terms.build_timeout_s
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._starter.close()
        self._equipment.close()

    @property
    def sandbox(self) -> SandboxFacts:
        """Say which walls stand, and what a runner of this problem may take."""
        return replace(self._starter.facts, memory_bytes=self._memory_bytes)

    @property
    def call_timeout_s(self) -> float:
        """Say how long a call may take: what was asked for, or much longer than the reference."""
        if self.terms.timeout_s is not None:
            return self.terms.timeout_s
        return max(_CALL_TIMEOUT_S, _REFERENCES_PER_TIMEOUT * self._sizes.reference_s)

    def desk(self) -> BuildDesk:
        """Open a desk for the build requests of one runner."""
        return BuildDesk(self._equipment.builder, self.terms.build_timeout_s)

    @contextlib.contextmanager
    def runner(self, source: str, desk: BuildDesk | None = None) -> Iterator["Place"]:
        """Start a runner for `source`; every process of it is dead when the context is left."""
        copy_bytes = room_for(self._sizes.output_bytes)
        inputs, outputs = (Region(size_bytes) for size_bytes in self._region_bytes)
        memory = SharedMemory(inputs, outputs, copy_bytes, self._equipment.library)
        limits = Limits(memory_bytes=self._memory_bytes)
        with inputs, outputs, Session(self._starter.spawn(_RUNNER, limits=limits), desk) as session:
            try:
                yield Place(self, source, session, memory)
            finally:
                session.child.kill()
                if source is self.source:
                    self.output = session.child.output()

    @property
    def _region_bytes(self) -> tuple[int, int]:
        """Say how large the regions of inputs and of outputs are."""
        inputs, copies = room_for(self._sizes.input_bytes), room_for(self._sizes.output_bytes)
        return inputs, copies + _ARENA_FACTOR * (copies + inputs)

    @property
    def _memory_bytes(self) -> int:
        return _RUNNER_BYTES + 4 * sum(self._region_bytes)

    def _run_tool(self, argv: Sequence[str], *, work: Path, timeout_s: float, limits: Limits) -> ToolResult:
        return run_tool(self._starter, argv, work=work, limits=limits, timeout_s=timeout_s, readable=[headers.INCLUDE])

    def _try_one_call(self) -> _CallSizes:
        """Run the reference once on inputs that are thrown away, to learn sizes and time, and that it works at all."""
        inputs = self.reference.draw(fresh_seed())
        started = time.monotonic()
        outputs = self.reference.forward(inputs, 0)
        reference_s = time.monotonic() - started
        found = tensors(outputs)
        if not found:
            raise ProblemError(f"{self.terms.problem.name}: the reference's forward returns no tensor")
        if any(leaf.numel() == 0 for leaf in found):
            raise ProblemError(f"{self.terms.problem.name}: the reference's output is empty: nothing can be compared")
        given = [*tensors(inputs.args), *tensors(inputs.kwargs)]
        state = [*tensors(self.reference.state()), *tensors(list(self.reference.init))]
        input_bytes = _bytes([*given, *state, *found])
        backward = self.terms.problem.backward
        return _CallSizes(input_bytes, _bytes(found) + (_bytes([*given, *state]) if backward else 0), reference_s)


class Place(NamedTuple):
    """A runner and its shared memory, before and after the submission is in it."""

    shop: Workshop
    source: str
    session: Session
    memory: SharedMemory

    def load(self) -> Fault | None:
        """Have the submission read in."""
        terms = self.shop.terms
        timeout_s = _IMPORT_TIMEOUT_S if terms.timeout_s is None else terms.timeout_s
        return self.session.load(
            self.source,
            self.shop.reference.source,
            memory=self.memory,
            emulated=terms.device is DeviceKind.EMULATED,
            threads=terms.threads,
            timeout_s=timeout_s,
        )

    def construct(self) -> Constructed | Fault:
        """Have ModelNew made, as the reference was, and given the reference's weights."""
        reference, terms = self.shop.reference, self.shop.terms
        values = [("init", reference.init.args), ("init", reference.init.kwargs), ("state", reference.state())]
        args, kwargs, state = place(list(values), self.memory.inputs).nodes
        if not isinstance(state, Table):
            raise TypeError("a state_dict is a table")
        frame = Construct(
            weight_seed=self.shop.seeds.weight,
            training=terms.problem.mode is Mode.TRAIN,
            args=args,
            kwargs=kwargs,
            state=state,
        )
        timeout_s = _IMPORT_TIMEOUT_S if terms.timeout_s is None else terms.timeout_s
        return self.session.construct(frame, timeout_s=timeout_s)

    def bench(self) -> Bench:
        """Set up trials with this runner."""
        return Bench(self.shop.reference, self.session, self.memory, self.shop.terms.tolerance)


def _environment(threads: int, device: DeviceKind) -> dict[str, str]:
    """Name the variables of a runner. Both sides of a comparison get the same.

    Waiting threads sleep: where they spin, two busy cores make a parallel loop six times slower (measured), and the
    time of every call depends on what else the machine does.
    """
    return {
        "OMP_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "PASSIVE",
        # On `emulated`, Triton's own interpreter runs what is written in Triton; Triton reads this when it is imported.
        **({"TRITON_INTERPRET": "1"} if device is DeviceKind.EMULATED else {}),
    }


def _bytes(found: list[torch.Tensor]) -> int:
    """Give the room that tensors need: as they lie, gaps included, or copied element by element."""
    return sum(max(extent_bytes(leaf), leaf.numel() * leaf.element_size()) + 512 for leaf in found)
