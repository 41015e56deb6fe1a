"""Windows and spot checks of one runner: fresh inputs for several calls, and a comparison of every output."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from evaluator.findings import Code, finding
from evaluator.judge.clock.clock import ClockedCall
from evaluator.judge.reference.call_plan import CallPlan
from evaluator.judge.setup.seed_book import fresh_seed
from evaluator.judge.tensors.pytree import LaidOut
from evaluator.judge.trial.trial_runner import Trial, TrialRunner
from evaluator.records import Fault, Status


class WindowTrials(NamedTuple):
    """Trials of a window's calls up to the first failure, and the times of the whole window."""

    trials: list[Trial]
    fault: Fault | None
    elapsed_ms: float
    was_queued: bool
    host_ms: float = 0.0


class SpotTrials(NamedTuple):
    """Trials of a spot check's calls up to the first failure, and the time of each call, in ms."""

    trials: list[Trial]
    fault: Fault | None
    times_ms: list[float]


class WindowRunner:
    """Makes windows in the runner of a `TrialRunner` that has answered a call before."""

    def __init__(self, trial_runner: TrialRunner) -> None:
        """Make windows of up to `TrialRunner.window_calls` calls."""
        self._trial_runner = trial_runner
        self._call_driver = trial_runner.call_driver

    def run(self, index: int, seeds: Sequence[int], *, timeout_s: float) -> WindowTrials:
        """Make one call for each seed, one behind the other, with the problem's own values; compare every output.

        The index of the first call is `index`.
        """
        plans = self._trial_runner.plans(index, seeds)
        placed, answer = self._call_driver.ask_window(index, plans, timeout_s=timeout_s)
        if isinstance(answer, Fault):
            return WindowTrials([], answer, 0.0, was_queued=False)
        trials = self._compared(index, plans, placed, answer.calls)
        return WindowTrials(trials, _fault(trials), answer.elapsed_ms, answer.was_queued, answer.host_ms)

    def spot_check(self, index: int, seeds: Sequence[int], *, timeout_s: float) -> SpotTrials:
        """Make calls as in a window, but release each call, and its weights, after the digest of the call before."""
        plans, weights = self._spot_plans(index, seeds)
        placed, answer = self._call_driver.ask_spot_check(index, plans, weights, timeout_s=timeout_s)
        if isinstance(answer, Fault):
            return SpotTrials([], answer, [])
        trials = self._compared(index, plans, placed, answer.calls, own_weights=True)
        fault = _fault(trials)
        if fault is None and answer.mismatch is not None:
            message = f"the outputs of call {index + answer.mismatch} changed after the call had ended"
            fault = Fault(Status.REJECTED, finding(Code.WORK_AFTER_DONE, message))
        return SpotTrials(trials, fault, answer.times_ms)

    def time_empty_spot_checks(self, calls: int, count: int, *, timeout_s: float) -> Iterator[list[float] | Fault]:
        """Yield the times of the calls of `count` spot checks without a forward, in ms. All have the same inputs."""
        plans, weights = self._spot_plans(1, [fresh_seed() for _ in range(calls)])
        for _ in range(count):
            _, answer = self._call_driver.ask_spot_check(1, plans, weights, timeout_s=timeout_s, empty=True)
            yield answer if isinstance(answer, Fault) else answer.times_ms

    def _spot_plans(self, index: int, seeds: Sequence[int]) -> tuple[list[CallPlan], list[dict[str, torch.Tensor]]]:
        """Return the plans of calls that each have their own weights, and these weights."""
        plans: list[CallPlan] = []
        weights: list[dict[str, torch.Tensor]] = []
        for seed in seeds:
            plans += self._trial_runner.plans(index, [seed])
            weights.append(self._call_driver.staged_weights())
        return plans, weights

    def time_empty_windows(self, calls: int, count: int, *, timeout_s: float) -> Iterator[float | Fault]:
        """Yield the time of the runner's host for each of `count` windows without a forward, in ms."""
        plans = self._trial_runner.plans(1, [fresh_seed() for _ in range(calls)])
        for _ in range(count):
            _, answer = self._call_driver.ask_window(1, plans, timeout_s=timeout_s, empty=True)
            yield answer if isinstance(answer, Fault) else answer.host_ms

    def _compared(
        self,
        index: int,
        plans: list[CallPlan],
        placed: LaidOut,
        calls: Sequence[ClockedCall],
        *,
        own_weights: bool = False,
    ) -> list[Trial]:
        """Compare calls up to the first failure. The inputs of all calls are compared with the first."""
        trials: list[Trial] = []
        for number, call in enumerate(calls):
            if own_weights:
                self._trial_runner.set_weights(plans[number].seed)
            inputs = LaidOut([], []) if trials else placed
            trials.append(self._trial_runner.compared(index + number, plans[number], inputs, call))
            plans[number].forget()
            if trials[-1].fault is not None:
                break
        return trials


def _fault(trials: Sequence[Trial]) -> Fault | None:
    return next((trial.fault for trial in trials if trial.fault is not None), None)
