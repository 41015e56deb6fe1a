"""One trial: fresh inputs, one call, a snapshot, a comparison. Checked and timed calls are the same trials."""

import hashlib
import secrets
from typing import Literal, NamedTuple

import torch

from evaluator.devices.memory import SharedMemory
from evaluator.findings import Code, finding
from evaluator.frames import Call, Done, EmulatorSchedule, Items, Node, Prepare, Table, TensorView
from evaluator.judge.compare import Sides, compare
from evaluator.judge.reference import Arguments, Expected, Reference
from evaluator.judge.session import Answered, Fault, Session
from evaluator.judge.snapshot import Snapshot, take
from evaluator.judge.tolerance import bounds
from evaluator.judge.trees import Pair, Placed, leaves, pair_up, place
from evaluator.records import Check, Finding, Order, Schedule, Status, TensorCheck, ToleranceRule, seed_text

PROFILE = "as_given"
"""Inputs as the problem's own `get_inputs` draws them."""


_ORDERS: dict[Order, Literal[0, 1, 2]] = {Order.ASCENDING: 0, Order.DESCENDING: 1, Order.SHUFFLED: 2}


class Trial(NamedTuple):
    """What came of one call: its record, the verdict it leads to if it is not a pass, and how long it took."""

    check: Check | None
    fault: Fault | None
    elapsed_ms: float
    copied: bool


class Bench:
    """Runs trials of one runner: it owns the shared memory and remembers the last outputs' addresses."""

    def __init__(self, reference: Reference, session: Session, memory: SharedMemory, rule: ToleranceRule) -> None:
        """Hold what `session`'s runner answers against `reference`."""
        self._reference = reference
        self._session = session
        self._inputs = memory.inputs
        self._outputs = memory.outputs
        self._ahead_bytes = 2 * memory.copy_bytes
        self._rule = rule
        self._last_storages: dict[str, tuple[int, int]] = {}

    def run(self, index: int, seed: int, *, timeout_s: float, schedule: Schedule | None = None) -> Trial:
        """Draw inputs from `seed`, let the runner answer, compare. The runner is stopped before and after."""
        inputs = self._reference.draw(seed)
        random_seed = _derived(seed, b"in forward")
        backward = self._reference.problem.backward
        gradients = (
            self._reference.output_gradients(self._reference.forward(inputs, random_seed), _derived(seed, b"gradients"))
            if backward
            else None
        )
        expected = self._reference.expected(inputs, random_seed, gradients)
        placed, answer = self._call(
            index, inputs, gradients, random_seed=random_seed, schedule=schedule, empty=False, timeout_s=timeout_s
        )
        if isinstance(answer, Fault):
            return Trial(None, answer, 0.0, copied=False)
        tensors, problem = self._judge(answer.done, expected, placed)
        copied = any(view.copied for view in _views(answer.done.outputs))
        check = Check(
            index=index,
            profile=PROFILE,
            seed=seed_text(seed),
            schedule=schedule,
            launches=answer.done.launches,
            ok=problem is None,
            precision="float64" if expected.in_float64 else "reference",
            tensors=tensors,
            finding=problem,
        )
        fault = None if problem is None else Fault(_status(problem), problem)
        return Trial(check, fault, answer.elapsed_ms, copied=copied)

    def run_empty(self, index: int, *, timeout_s: float) -> float | Fault:
        """Do all of a call but the model's own work, in a runner that has answered before; give its time in ms."""
        inputs = self._reference.draw(fresh_seed())
        _, answer = self._call(index, inputs, None, random_seed=0, schedule=None, empty=True, timeout_s=timeout_s)
        return answer if isinstance(answer, Fault) else answer.elapsed_ms

    def _call(
        self,
        index: int,
        inputs: Arguments,
        gradients: list[torch.Tensor] | None,
        *,
        random_seed: int,
        schedule: Schedule | None,
        empty: bool,
        timeout_s: float,
    ) -> tuple[Placed, Answered | Fault]:
        """Have the runner prepare itself, write the inputs while it is stopped, and let it go."""
        prepared = self._session.call(
            Prepare(index=index, random_seed=random_seed, poison=secrets.randbelow(256), ahead_bytes=self._ahead_bytes),
            timeout_s=timeout_s,
        )
        if isinstance(prepared, Fault):
            return Placed([], []), prepared
        placed = place(
            [
                *((f"input {position}", value) for position, value in enumerate(inputs.args)),
                *((f"input {name}", value) for name, value in inputs.kwargs.items()),
                ("gradient", gradients or []),
            ],
            self._inputs,
        )
        *nodes, output_gradients = placed.nodes
        count = len(nodes) - len(inputs.kwargs)
        frame = Call(
            index=index,
            empty=empty,
            schedule=None if schedule is None else _schedule_frame(schedule),
            args=Items(is_tuple=False, items=nodes[:count]),
            kwargs=Table(keys=list(inputs.kwargs), items=nodes[count:]),
            output_gradients=None if gradients is None or not isinstance(output_gradients, Items) else output_gradients,
        )
        return placed, self._session.call(frame, timeout_s=timeout_s)

    def _judge(self, done: Done, expected: Expected, placed: Placed) -> tuple[list[TensorCheck], Finding | None]:
        """Compare an answer. It starts as a failure: only a comparison of every output makes it a pass."""
        pairs = pair_up(expected.honest.outputs, done.outputs)
        if isinstance(pairs, Finding):
            return [], pairs
        if expected.honest.gradients is not None:
            found = _gradient_pairs(expected.honest.gradients, done)
            if isinstance(found, Finding):
                return [], found
            pairs += found
        snapshots = take(pairs, self._outputs)
        if isinstance(snapshots, Finding):
            return [], snapshots
        exact = dict(leaves(expected.exact.outputs, "output"))
        exact |= {f"gradient of {name}": value for name, value in (expected.exact.gradients or {}).items()}
        checks = [self._compare(snapshot, exact[snapshot.path]) for snapshot in snapshots]
        problem = next((problem for check in checks if (problem := _verdict(check)) is not None), None)
        return checks, problem or _changed_input(placed) or self._reused(snapshots, expected.borrowed)

    def _compare(self, snapshot: Snapshot, exact: torch.Tensor) -> TensorCheck:
        dtype = snapshot.expected.dtype
        closely = dtype.is_floating_point or dtype.is_complex
        real = torch.empty(0, dtype=dtype).real.dtype if dtype.is_complex else dtype
        limits = bounds(self._rule, self._reference.problem, real) if closely else None
        if not closely:
            exact = exact.to(dtype)
        return compare(snapshot.path, Sides(snapshot.tensor, exact, snapshot.expected), limits)

    def _reused(self, snapshots: list[Snapshot], exempt: frozenset[str]) -> Finding | None:
        """Find an output in the memory of the last call's, which the runner still held.

        The reference may do so itself, by returning a view of a weight or of an input; then anyone may.
        """
        before, self._last_storages = self._last_storages, {}
        for path, _, tensor, storage in snapshots:
            if storage is None or tensor.numel() == 0 or path in exempt or not path.startswith("output"):
                continue
            self._last_storages[path] = storage
            start, size = storage
            for old_path, (old_start, old_size) in before.items():
                if start < old_start + old_size and old_start < start + size:
                    return finding(Code.OUTPUT_REUSED, f"{path} lies in the memory of the call before's {old_path}")
        return None


def _schedule_frame(schedule: Schedule) -> EmulatorSchedule:
    return EmulatorSchedule(order=_ORDERS[schedule.order], seed=int(schedule.seed, 16), workers=schedule.workers)


def _views(node: Node) -> list[TensorView]:
    """List the tensors of an answer. It may be nested as deeply as a frame can be, so nothing recurs here."""
    views: list[TensorView] = []
    todo = [node]
    while todo:
        match todo.pop():
            case TensorView() as view:
                views.append(view)
            case Items(items=items) | Table(items=items):
                todo += items
            case _:
                pass
    return views


def _gradient_pairs(expected: dict[str, torch.Tensor | None], done: Done) -> list[Pair] | Finding:
    answers = done.gradients or {}
    pairs = []
    for name, gradient in expected.items():
        if gradient is None:
            continue
        answer = answers.get(name)
        if answer is None:
            return finding(Code.NO_GRADIENT, f"there is no gradient of {name}", name=name)
        pairs.append(Pair(f"gradient of {name}", gradient, answer))
    return pairs


def _verdict(check: TensorCheck) -> Finding | None:
    if check.ok:
        return None
    first = check.first_mismatch
    place = f", first at {first.index}: expected {first.expected}, got {first.actual}" if first is not None else ""
    code = Code.NOT_FINITE if check.nonfinite else Code.WRONG_VALUES
    total = torch.Size(check.shape).numel()
    return finding(code, f"{check.path}: {check.mismatches} of {total} values differ{place}", path=check.path)


def _changed_input(placed: Placed) -> Finding | None:
    for path, own, shared in placed.pairs:
        if not torch.equal(_content(own), _content(shared)):
            return finding(Code.INPUT_CHANGED, f"{path} was written to", path=path)
    return None


def _content(tensor: torch.Tensor) -> torch.Tensor:
    """Give a tensor's bytes, which differ where NaNs or signs of zero do."""
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _status(problem: Finding) -> Status:
    return Status.REJECTED if problem.code == Code.MALFORMED_FRAME.value else Status.WRONG_RESULT


def _derived(seed: int, purpose: bytes) -> int:
    """Give another seed. The one for random numbers in forward is told to the runner, so it must tell no other's."""
    return int.from_bytes(hashlib.blake2b(seed.to_bytes(8, "big"), digest_size=8, person=purpose).digest(), "big") >> 1


def fresh_seed() -> int:
    """Draw a 63-bit seed from the operating system."""
    return secrets.randbits(63)
