"""Answers of a function, judged by the trials of a grade in this process: the same calls, bounds, checks and findings.

No runner and no sandbox exists: the function receives the plan of a call, and its result takes the place of a runner's
output. Nothing is timed. `orders_table`, `low_precision_table` and `honest_grades` use this module. Beside other work,
set OMP_WAIT_POLICY=PASSIVE: threads of PyTorch that spin then take a hundred times as long.
"""

import itertools
import json
import multiprocessing
import resource
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import torch

from evaluator.cache.build_cache import BuildCache
from evaluator.compile.own_libraries import build_kernels
from evaluator.devices.memory import SharedMemory
from evaluator.errors import ToolchainMissing
from evaluator.judge.clock.clock import ClockedCall
from evaluator.judge.compare.fused_kernel import FusedComparison
from evaluator.judge.compare.tensor_comparison import Comparison, begin
from evaluator.judge.reference.call_plan import CallPlan
from evaluator.judge.reference.changing_weights import Sites
from evaluator.judge.reference.reference import Expected, Honest, Reference
from evaluator.judge.setup.distribution_mix import AS_GIVEN_ALONE, DistributionMix, distribution_mix_for
from evaluator.judge.setup.problem_setup import planned, try_one_call
from evaluator.judge.setup.seed_book import SeedBook
from evaluator.judge.tensors.call_arguments import Arguments
from evaluator.judge.tensors.pytree import LaidOut, Value
from evaluator.judge.trial.enough_calls import MIN_CALLS
from evaluator.judge.trial.model_runner import FROZEN_BY_RULE
from evaluator.judge.trial.retry import differing, retried
from evaluator.judge.trial.trial import Trial
from evaluator.judge.trial.trial_runner import TrialRunner
from evaluator.paths import cache_folder
from evaluator.protocol import model_call
from evaluator.protocol.frames import DictItems, Done, Items, Node, Scalar, TensorView
from evaluator.protocol.pytree import dtype_name, plain, tensors_of
from evaluator.records import CaseName, Fault, Problem, Profile, ToleranceRule, WeightsRule
from evaluator.sandbox import ToolResult
from evaluator.toolchain.nvcc import architecture

Answer = Callable[[CallPlan], model_call.Result]
_TIMEOUT_S = 60.0
_MOST_CALLS = 100
_FORKING = threading.Lock()
"""One fork at a time: filelock refuses a fork during another thread's."""


class OneCallReference(Reference):
    """Reference that keeps the expected values of the last seed: several answers to one call share one computation.

    All calls with one seed must have equal weights and equal cancelling rows.
    """

    _seed: int | None = None
    _kept: tuple[int, Expected] | None = None

    def draw(self, seed: int, profile: Profile = Profile.AS_GIVEN, decoy: Profile = Profile.AS_GIVEN) -> Arguments:
        """Return the inputs of a call, and forget the expected values of another call."""
        if seed != self._seed:
            self._seed, self._kept = seed, None
        return super().draw(seed, profile, decoy)

    def expected(
        self,
        inputs: Arguments,
        random_seed: int,
        gradients: list[torch.Tensor] | None,
        *,
        comparable: bool | None = None,
        honest: Honest | None = None,
    ) -> Expected:
        """Return the expected values of a call; in row blocks, nothing is kept."""
        if honest is None or self._seed is None:
            return super().expected(inputs, random_seed, gradients, comparable=comparable, honest=honest)
        if self._kept is None:
            found = super().expected(inputs, random_seed, gradients, comparable=comparable, honest=honest)
            self._kept = self._seed, found
        return self._kept[1]


class Setup(NamedTuple):
    """A problem prepared as by a grade."""

    reference: Reference
    distribution_mix: DistributionMix
    compare: Comparison


def set_up(problem: Problem, size: CaseName, device: str, kind: type[Reference] = Reference) -> Setup:
    """Prepare a problem as a grade does, on `cpu` or `cuda`. Raises ProblemError for a broken problem."""
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    seeds = SeedBook(None)
    reference = kind(problem, size, seeds.weight, device)
    distribution_mix = distribution_mix_for(reference, size, ToleranceRule.MEASURED)
    sizes, _ = try_one_call(reference, on_gpu=device == "cuda")
    if device == "cuda":
        torch.cuda.empty_cache()
        planned(reference, sizes, torch.cuda.mem_get_info()[0])
    return Setup(reference, distribution_mix, _fused() if device == "cuda" else begin)


def _fused() -> Comparison:
    """Return the comparison of a grade on a GPU; without nvcc, the slower comparison by PyTorch.

    The judge's own kernels are compiled without a sandbox.
    """

    def run_tool(argv: Sequence[str], *, work: Path, timeout_s: float, **_: Any) -> ToolResult:
        started = time.monotonic()
        ended = subprocess.run(argv, cwd=work, timeout=timeout_s, capture_output=True, text=True, check=False)
        seconds = time.monotonic() - started
        return ToolResult(exit_code=ended.returncode, signal=None, timed_out=False, output=ended.stderr, wall_s=seconds)

    capability = architecture(*torch.cuda.get_device_capability())
    try:
        return FusedComparison(build_kernels(run_tool, BuildCache(cache_folder()), capability)).begin
    except ToolchainMissing:
        return begin


class _Outputs:
    """Region that holds the outputs of the current call."""

    descriptor = -1

    def __init__(self) -> None:
        self.flat = torch.empty(0, dtype=torch.uint8)

    @property
    def size_bytes(self) -> int:
        return self.flat.numel()

    def close(self) -> None:
        self.flat = torch.empty(0, dtype=torch.uint8)

    def node(self, result: model_call.Result, device: torch.device) -> tuple[Node, dict[str, TensorView | None]]:
        """Copy the tensors of a result into new memory, and return the nodes of outputs and gradients."""
        gradients = result.gradients or {}
        found = [*tensors_of(result.outputs), *(each for each in gradients.values() if each is not None)]
        self.flat = torch.empty(sum(map(_padded_bytes, found)), dtype=torch.uint8, device=device)
        start = itertools.accumulate(map(_padded_bytes, found), initial=0)

        def view(tensor: torch.Tensor) -> TensorView:
            offset, size = next(start), tensor.numel() * tensor.element_size()
            self.flat[offset : offset + size].view(tensor.dtype).copy_(tensor.reshape(-1))
            strides = torch.empty(tensor.shape, device="meta").stride()
            return TensorView(dtype_name(tensor.dtype), tuple(tensor.shape), strides, offset, device=device.type)

        outputs = _node(result.outputs, view)
        return outputs, {name: None if each is None else view(each) for name, each in gradients.items()}


def _padded_bytes(tensor: torch.Tensor) -> int:
    return -(-tensor.numel() * tensor.element_size() // 256) * 256


def _node(value: Value, view: Callable[[torch.Tensor], TensorView]) -> Node:
    if isinstance(value, torch.Tensor):
        return view(value)
    if isinstance(value, Mapping):
        return DictItems(keys=list(value), items=[_node(item, view) for item in value.values()])
    if isinstance(value, list | tuple):
        return Items(is_tuple=isinstance(value, tuple), items=[_node(item, view) for item in value])
    return Scalar(value=plain(value))


class _FunctionDriver:
    """Stand-in for `CallDriver`: a function answers the calls."""

    def __init__(self, answer: Answer, outputs: _Outputs) -> None:
        self._answer = answer
        self._outputs = outputs
        self.wanted: model_call.Result | None = None

    def ask(self, index: int, plan: CallPlan, wanted: model_call.Result | None, **_: Any) -> tuple[LaidOut, Any]:
        self.wanted = wanted
        nodes, gradients = self._outputs.node(self._answer(plan), plan.reference.device)
        done = Done(index=index, outputs=nodes, gradients=gradients if plan.gradients is not None else None)
        return LaidOut([], []), ClockedCall(done, 1.0)


class _NoClock:
    empty_ms = 0.0
    memory_samples = None


class AnswerTrials(TrialRunner):
    """Trials of a grade whose answers come from a function."""

    def __init__(self, setup: Setup, answer: Answer, rule: ToleranceRule = ToleranceRule.MEASURED) -> None:
        """Judge the results of `answer` against the reference of `setup`."""
        reference, outputs = setup.reference, _Outputs()
        frozen = reference.problem.weights is WeightsRule.FROZEN
        sites = Sites({}, FROZEN_BY_RULE if frozen else reference.weights.why_not)
        memory: Any = SharedMemory(outputs, outputs, 0, None, 0)
        clock: Any = _NoClock()
        super().__init__(reference, clock, memory, rule, setup.compare, setup.distribution_mix, sites=sites)
        self.call_driver: Any = _FunctionDriver(answer, outputs)


class Verdict(NamedTuple):
    """Verdict of a grade: the code of the finding (None: correct), its message, and the largest error over allowed."""

    code: str | None
    message: str
    ratio: float


def graded(setup: Setup, answer: Answer) -> Verdict:
    """Make the calls of a grade with fresh seeds, and return the verdict. A failed call ends the grade."""
    seeds = SeedBook(None, weight=0)
    seeds.settle(setup.distribution_mix)
    ratio = 0.0
    for stage in (_checked, _timed):
        trials = AnswerTrials(setup, answer)
        for trial, fault in stage(trials, seeds):
            ratio = max(ratio, ratio_of(trial))
            if fault is not None:
                return Verdict(fault.finding.code, fault.finding.message, ratio)
        lowered = trials.look_closely()
        if lowered is not None and lowered.fault is not None:
            return Verdict(lowered.fault.finding.code, lowered.fault.finding.message, ratio)
    return Verdict(None, "", ratio)


def wrong_by_kernelbench(setup: Setup, answer: Answer, seeds: Iterable[int]) -> int:
    """Return how many calls with the problem's own values are wrong by KernelBench's tolerance."""
    trials = AnswerTrials(setup._replace(distribution_mix=AS_GIVEN_ALONE), answer, ToleranceRule.KERNELBENCH)
    return sum(trials.run(0, seed, timeout_s=_TIMEOUT_S, explain=False).fault is not None for seed in seeds)


def counted(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Return the part of a line that says what came of grades: their number, the codes, and a message."""
    refusals = [each for each in verdicts if each.code is not None]
    return {
        "grades": len(verdicts),
        "codes": dict(Counter(each.code for each in refusals)),
        "message": refusals[0].message[:300] if refusals else "",
    }


def refused(line: Mapping[str, Any]) -> int:
    """Return the number of refused grades in a line with `counted`."""
    return sum(line["codes"].values())


def codes_of(line: Mapping[str, Any]) -> str:
    """Return the codes of a line with `counted`, for a table."""
    return ", ".join(f"{code} {count}" for code, count in sorted(line["codes"].items())) or "none"


def not_tried(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the end of a page: the tasks without results, and why; nothing if each has results."""
    failed = [f"- {line['name']}: {line['failure']}" for line in lines if "failure" in line]
    return ["", "Not tried:", "", *failed] if failed else []


def _checked(trials: TrialRunner, seeds: SeedBook) -> Iterator[tuple[Trial, Fault | None]]:
    right: set[int] = set()
    for index, seed in enumerate(seeds.checks()):
        trial = trials.run(index, seed, timeout_s=_TIMEOUT_S)
        if trial.fault is not None and seed in right:
            yield trial, differing(trial.fault)
        else:
            yield trial, _explained(trials, trial, index, seed)
        right.add(seed)


def _timed(trials: TrialRunner, seeds: SeedBook) -> Iterator[tuple[Trial, Fault | None]]:
    """Make the timed calls: the first is not quoted, and as many quoted calls follow as a grade makes at least."""
    quoted, lacking = 0, False
    for index, seed in enumerate(itertools.islice(seeds.timed("submission"), _MOST_CALLS)):
        if quoted >= MIN_CALLS and not lacking:
            return
        trial = trials.run(index, seed, timeout_s=_TIMEOUT_S, quick=not lacking)
        yield trial, _explained(trials, trial, index, seed)
        lacking = trials.lacks_calls
        quoted += index > 0 and trial.profile is Profile.AS_GIVEN


def _explained(trials: TrialRunner, trial: Trial, index: int, seed: int) -> Fault | None:
    if trial.fault is None:
        return None
    return retried(trials, trial, index, seed, itertools.repeat(None), _TIMEOUT_S)[0]


def ratio_of(trial: Trial) -> float:
    """Return the largest error of a call over the allowed error; infinite for a NaN in place of a number."""
    found = [] if trial.check is None else trial.check.tensors
    return max((float("inf") if each.error_ratio is None else each.error_ratio for each in found), default=0.0)


def json_lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file of results; none if the file does not exist yet."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def in_children(
    tasks: Sequence[tuple[str, tuple[Any, ...]]],
    work: Callable[..., dict[str, Any]],
    path: Path,
    *,
    jobs: int,
    seconds: float,
    gib: float | None = None,
) -> None:
    """Run `work` with the arguments of each task in its own process, and append each result to `path` as a line.

    Tasks with a line in `path` are left out. A task beyond `seconds`, or beyond `gib` of host memory, has a line with
    its `failure`.
    """
    known = {line["name"] for line in json_lines(path)}
    with path.open("a", encoding="utf-8") as out, ThreadPoolExecutor(jobs) as pool:
        left = [(name, arguments) for name, arguments in tasks if name not in known]
        for line in pool.map(lambda task: _in_child(*task, work, seconds, gib), left):
            out.write(json.dumps(line) + "\n")
            out.flush()
            print(f"{line['name']}: {line.get('failure') or 'done'}, {line['seconds']} s", flush=True)


def _in_child(
    name: str, arguments: tuple[Any, ...], work: Callable[..., dict[str, Any]], seconds: float, gib: float | None
) -> dict[str, Any]:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    started = time.monotonic()
    child = context.Process(target=_work, args=(theirs, work, arguments, gib))
    with _FORKING:
        child.start()
    theirs.close()
    line: dict[str, Any] = {"failure": f"not done after {seconds:.0f} s"}
    try:
        if ours.poll(seconds):
            line = ours.recv()
    except EOFError:
        line = {"failure": "its process died"}
    finally:
        child.kill()
        child.join()
    return {"name": name, "seconds": round(time.monotonic() - started, 1), **line}


def _work(pipe: Any, work: Callable[..., dict[str, Any]], arguments: tuple[Any, ...], gib: float | None) -> None:
    if gib is not None:  # Not the address space: a CUDA build of PyTorch maps gigabytes of code.
        resource.setrlimit(resource.RLIMIT_DATA, (int(gib * 2**30),) * 2)
    try:
        line = work(*arguments)
    except Exception as error:  # noqa: BLE001 - a table of many rows reports the failure of one
        line = {"failure": f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"[:300]}
    pipe.send(line)
