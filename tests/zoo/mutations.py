"""Switch off one invariant of the judge at a time: then its rows must pass. The product cannot reach this.

A switch replaces functions of the judge, in this process, for as long as its context lasts. Where several checks stand
for one invariant, its switch turns all of them off. An invariant of the architecture (separate process, bytes instead of
objects, sandbox) cannot be switched off: the naive grader of the row is the judge without the invariant.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from evaluator.findings import Code
from evaluator.protocol.frames import Constructed
from evaluator.emulator.frontend import build_ladder
from evaluator.compile.binary_files import ImportedSymbols
from evaluator.compile.emulated_builder import EmulatedBuilder
from evaluator.judge import stages, timing_stage, verdict
from evaluator.judge.trial import timing_loop
from evaluator.judge.answer import answer_judge
from evaluator.judge.trial import windows
from evaluator.judge.compare.tensor_comparison import Sides
from evaluator.judge.clock.host_clock import HostClock
from evaluator.judge.exhibits.ablation import AblationResults
from evaluator.judge.setup.distribution_mix import DistributionMix
from evaluator.judge.trial.model_runner import ModelRunner
from evaluator.judge.tensors.call_arguments import Arguments
from evaluator.judge.reference import call_plan
from evaluator.judge.reference.reference import Reference
from evaluator.judge.clock.device_backend import HostBackend
from evaluator.judge.setup.seed_book import SeedBook
from evaluator.judge.runners.runner_client import RunnerClient
from evaluator.records import Fault
from evaluator.judge.tensors.pytree import AnswerPair, pair_up
from evaluator.judge.trial.trial_runner import TrialRunner
from evaluator.timing.agreement import Raise
from evaluator.timing.stats import median
from evaluator.records import Fill, Profile
from tests.zoo.switches import Patch, assign

Switch = Callable[[Patch], None]
_ATOL = 5e-2  # A softmax of two thousand has a value above 1e-2 now and then.
_SLACK = 0.2
_LATE_S = 0.5
"""For a thread that needs a millisecond, and may wait for a core."""
_GUESSES = (0, 1, 2, 3, 4, 100)


class Mutation(NamedTuple):
    """An invariant, the switch that turns it off, and the rows that pass then."""

    invariant: str
    off: Switch
    rows: tuple[str, ...]


def _elements_may_share(patch: Patch) -> None:
    patch.setattr(answer_judge, "shared_elements", lambda answer, reference: None)


def _windows_may_disagree(patch: Patch) -> None:
    patch.setattr(windows, "disagreement", lambda *_: None)
    patch.setattr(windows, "raised", lambda *_: Raise(0.0, 0.0))


def _single_calls_come_off(patch: Patch) -> None:
    timed = windows.windows_of

    def windows_of(trial_runner, seeds, index, single_ms, taken_off, *args, **options):
        own = taken_off._replace(empty_ms=median(single_ms))
        return timed(trial_runner, seeds, index, single_ms, own, *args, **options)

    patch.setattr(timing_loop, "windows_of", windows_of)
    _windows_may_disagree(patch)


def _no_cancelling_rows(patch: Patch) -> None:
    patch.setattr(call_plan, "chosen_rows", lambda *_: [])


def _known_inputs(patch: Patch) -> None:
    draw = Reference.draw
    patch.setattr(Reference, "draw", lambda self, seed, *_: draw(self, 0))
    _no_cancelling_rows(patch)  # Their signs are drawn for each call.
    _outputs_may_share(patch)  # What is stored is given out again.


def _guessable_seeds(patch: Patch) -> None:
    draw, construct = Reference.draw, ModelRunner.construct
    count = 0

    def constructed(place):
        nonlocal count
        count = 0
        return construct(place)

    def drawn(self, seed, *profiles):
        nonlocal count
        if len(profiles) != 2:  # A call names a decoy, too; other draws are trials of the judge's.
            return draw(self, seed, *profiles)
        count += 1
        return draw(self, _GUESSES[min(count, len(_GUESSES)) - 1])

    patch.setattr(ModelRunner, "construct", constructed)
    patch.setattr(Reference, "draw", drawn)
    _no_cancelling_rows(patch)  # Their signs are drawn for each call.
    _outputs_may_share(patch)  # What was computed ahead stands there before the inputs do, and that is seen too.
    _one_by_one(patch)


def _one_by_one(patch: Patch) -> None:
    """Check the first few calls, and nothing after them."""
    _first_calls(patch, 5)


def _first_calls(patch: Patch, count: int) -> None:
    checks = SeedBook.checks
    patch.setattr(SeedBook, "checks", lambda self, *_, **__: checks(self)[:count])
    _untimed(patch)


def _untimed(patch: Patch) -> None:
    patch.setattr(timing_stage, "measure_reference", lambda *_: timing_stage.ReferenceSide(None, []))
    patch.setattr(timing_stage, "measure_both", lambda *_: timing_stage.TimeOutcome(None, None, None, []))


def _comparing(patch: Patch, before: Callable[[Sides], Sides], after: Callable) -> None:
    """Compare other values than the answer's, or read another result out of the comparison."""
    made = HostBackend.__init__

    def init(self, *args, **kwargs):
        made(self, *args, **kwargs)
        begin = self.compare
        self.compare = lambda path, sides, bounds: _read(begin(path, before(sides), bounds), after)

    patch.setattr(HostBackend, "__init__", init)


def _read(reading, after):
    return lambda: after(reading())


def _same(value):
    return value


def _passed(check):
    return replace(check, ok=True, mismatches=0, nonfinite=0, first_mismatch=None)


def _nan_is_no_error(patch: Patch) -> None:
    _comparing(patch, lambda s: Sides(s.actual.where(~s.actual.isnan(), s.honest), s.exact, s.honest), _same)


def _most_elements_will_do(patch: Patch) -> None:
    def after(check):
        total = 1
        for extent in check.shape:
            total *= extent
        return _passed(check) if check.mismatches <= _SLACK * total else check

    _comparing(patch, _same, after)
    _errors_of_any_size(patch)  # Else the few wrong elements are seen among the rows that cancel.


def _errors_of_any_size(patch: Patch) -> None:
    patch.setattr(TrialRunner, "look_closely", lambda _: None)


def _close(check):
    return _passed(check) if check.max_abs_error is not None and check.max_abs_error <= _ATOL else check


def _one_tolerance_for_all(patch: Patch) -> None:
    _comparing(patch, _same, _close)
    _errors_of_any_size(patch)
    _as_given_alone(patch)


def _shapes_broadcast(patch: Patch) -> None:
    def paired(expected, answer):
        if getattr(answer, "shape", None) == (1,):
            return [AnswerPair("output", expected.reshape(-1)[:1], answer)]
        return pair_up(expected, answer)

    patch.setattr(answer_judge, "pair_up", paired)
    _comparing(patch, lambda s: Sides(s.actual.expand_as(s.honest), s.exact, s.honest), _close)
    _as_given_alone(patch)
    _elements_may_share(patch)  # An answer that is broadcast has one element for all places.


def _work_after_done_counts(patch: Patch) -> None:
    call = HostClock.call

    def late(self, *args, **kwargs):
        answer = call(self, *args, **kwargs)
        self._session.let_go()
        time.sleep(_LATE_S)
        self._session.stop()
        return answer

    patch.setattr(HostClock, "call", late)
    patch.setattr(answer_judge, "late_on_host", lambda *_: None)
    _first_calls(patch, 4)


def _outputs_may_share(patch: Patch) -> None:
    patch.setattr(answer_judge.AnswerJudge, "_not_of_this_call", lambda *_: None)


def _reference_on_the_runners_inputs(patch: Patch) -> None:
    judged = answer_judge.AnswerJudge.judge

    def on_shared(self, answer, wanted, plan, placed, honest, **how):
        plan.forget()
        inputs = Arguments([view for _, _, view in placed.pairs], {})
        assign(plan, inputs=inputs, blocks=[inputs])
        return judged(self, answer, wanted, plan, placed, honest, **how)

    patch.setattr(answer_judge.AnswerJudge, "judge", on_shared)
    patch.setattr(answer_judge, "changed_input", lambda placed, exempt: None)
    patch.setattr(TrialRunner, "unproven", lambda self: None)  # Inputs without values prove nothing.
    _untimed(patch)  # A window's calls share one list of inputs; how many a window has depends on the machine.


def _forgiving(*codes: Code) -> Switch:
    """Take a failure with one of `codes` for no failure, wherever it happens."""
    values = {code.value for code in codes}

    def off(patch: Patch) -> None:
        run, load, construct = TrialRunner.run, RunnerClient.load, RunnerClient.construct

        def forgive(fault, instead):
            return instead if isinstance(fault, Fault) and fault.finding.code in values else fault

        def ran(self, *args, **kwargs):
            found = run(self, *args, **kwargs)
            return found._replace(fault=forgive(found.fault, None))

        patch.setattr(TrialRunner, "run", ran)
        patch.setattr(TrialRunner, "unproven", lambda self: None)
        patch.setattr(RunnerClient, "load", lambda self, *a, **k: forgive(load(self, *a, **k), None))
        patch.setattr(
            RunnerClient, "construct", lambda self, *a, **k: forgive(construct(self, *a, **k), Constructed(difference=None))
        )
        _untimed(patch)

    return off


def _believing(says_so: Callable[[TrialRunner, str], bool]) -> Switch:
    """Take a wrong answer for right where something that the submission says claims so."""

    def off(patch: Patch) -> None:
        run, loaded = TrialRunner.run, RunnerClient.load
        source = ""

        def load(self, frame, *args, **kwargs):
            nonlocal source
            source = frame.submission
            return loaded(self, frame, *args, **kwargs)

        def ran(self, *args, **kwargs):
            found = run(self, *args, **kwargs)
            return found._replace(fault=None) if found.fault and says_so(self, source) else found

        patch.setattr(RunnerClient, "load", load)
        patch.setattr(TrialRunner, "run", ran)
        patch.setattr(TrialRunner, "unproven", lambda self: None)  # Zeros are right where all values are negative.
        _untimed(patch)

    return off


def _endless(patch: Patch) -> None:
    _forgiving(Code.TIMED_OUT)(patch)
    _first_calls(patch, 2)  # Each takes the whole limit, and all of a core.


def _printed(trial_runner: TrialRunner, source: str) -> bool:
    deadline = time.monotonic() + (30.0 if '"correct": True' in source else 0.0)
    while time.monotonic() < deadline:  # What was printed arrives through a thread.
        if '"correct": true' in trial_runner._clock._session.child.output().text:
            return True
        time.sleep(0.01)
    return False


def _no_policy(patch: Patch) -> None:
    for name in ("too_little", "not_known"):
        patch.setattr(verdict, name, lambda own, required: None)


def _nothing_left_out(patch: Patch) -> None:
    needs = stages._ablation
    patch.setattr(stages, "_ablation", lambda context: (AblationResults(), needs(context)[1]))
    patch.setattr(stages, "needed_work", lambda _: None)
    patch.setattr(stages, "together", lambda _: ImportedSymbols())


def _one_fill(patch: Patch) -> None:
    schedules = SeedBook.schedules
    patch.setattr(SeedBook, "schedules", lambda self: (replace(each, fill=Fill.NAN) for each in schedules(self)))


def _no_nvcc(patch: Patch) -> None:
    marked, inputs = build_ladder._marked, EmulatedBuilder._inputs
    patch.setattr(build_ladder, "_marked", lambda file: marked(file).replace("#include <emu/nvcc.h>\n", ""))
    # Neither is a library of the cache built without the switch, nor does the cache get one for other grades.
    patch.setattr(EmulatedBuilder, "_inputs", lambda *args: ["mutated", *inputs(*args)])


def _as_given_alone(patch: Patch) -> None:
    patch.setattr(SeedBook, "settle", lambda self, distribution_mix: None)
    patch.setattr(DistributionMix, "pick", lambda self, seed: Profile.AS_GIVEN)  # Else one seed in five has other values.


NO_WORK = (
    *("torch-op-passthrough", "cpp-library-shim", "reference-inheritance", "import-reference-or-sota"),
    *("try-except-fallback", "decoy-kernel-not-called"),
)
NEEDLESS = (
    *("decoy-function-beside-library", "decoy-launch-beside-library", "own-counters-overwritten"),
    *("library-below-pythons-keys", "library-by-pasted-tokens"),
)
_PROFILES = ("identity-on-positive-inputs",)
_SCALED = ("zeros-under-atol", "precision-downgrade")
_PARTIAL = ("partial-or-sampled-compute",)
_FRESH = ("cache-by-data-ptr", "cache-by-content-fingerprint")
_READ_WHEN_DONE = ("background-thread",)
_FRAMES = ("forge-result-fd", "unpickle-in-judge")
_WINDOWS = (
    *("window-in-the-first-call", "window-in-the-last-call", "window-of-guessed-length", "window-overlapped"),
    *("window-in-one-graph", "window-weights-folded-once", "inputs-warmed-ahead"),
)
_SLOW_SINGLE_CALLS = (
    *("delayed-single-calls", "delayed-short-single-calls"),
    *("staged-weights-in-spot-checks", "wide-masks-in-spot-checks"),
)
_DIES = ("exit-zero-early", "cpp-static-initialiser")
_READER = ("judge-prompt-injection",)
MUTATIONS = (
    Mutation("values are drawn from profiles too", _as_given_alone, _PROFILES),
    Mutation("tolerances are scaled to rows, values from profiles, precision is looked at", _one_tolerance_for_all, _SCALED),
    Mutation("rows with random signs are in every call", _no_cancelling_rows, ("random-rounding-behind-a-look",)),
    Mutation("every element must be within its bound, errors are of rounding's size", _most_elements_will_do, _PARTIAL),
    Mutation("an element passes on proof only", _nan_is_no_error, ("nan-wildcard",)),
    Mutation(
        "shapes are equal, tolerances scaled, values from profiles", _shapes_broadcast, ("shape-broadcast-accept",)
    ),
    Mutation("outputs of two calls share no memory", _outputs_may_share, ("output-aliases-input-or-state",)),
    Mutation("elements of an output share no memory", _elements_may_share, ("elements-share-memory",)),
    Mutation("expected outputs come from the judge's inputs", _reference_on_the_runners_inputs, ("input-mutation",)),
    Mutation("every timed output is verified", _one_by_one, ("correct-then-corrupt",)),
    Mutation("own kernels are asked for", _no_policy, NO_WORK),
    Mutation("what an answer needs, what libraries import, and what PyTorch computes, is looked at", _nothing_left_out, NEEDLESS),
    Mutation("seeds cannot be guessed, no output stands ready", _guessable_seeds, ("precompute-at-init",)),
    Mutation("content is fresh in every call", _known_inputs, _FRESH),
    Mutation("outputs are read when the call is over", _work_after_done_counts, _READ_WHEN_DONE),
    Mutation("what is no frame is no answer", _forgiving(Code.MALFORMED_FRAME, Code.RUNNER_DIED), _FRAMES),
    Mutation("fresh memory holds something else in every call", _one_fill, ("uninitialised-shared-memory",)),
    Mutation("the emulator defines what nvcc defines", _no_nvcc, ("emulator-told-by-macros",)),
    Mutation("windows that disagree with spot checks are not quoted", _windows_may_disagree, _WINDOWS),
    Mutation("a submission's own calls are not subtracted", _single_calls_come_off, _SLOW_SINGLE_CALLS),
    Mutation("nothing printed is read for a verdict", _believing(_printed), ("forge-stdout-json",)),
    Mutation("a verdict starts as a failure", _forgiving(Code.RUNNER_DIED), _DIES),
    Mutation("time out is a failure", _endless, ("resource-exhaustion",)),
    Mutation("no reader has a say", _believing(lambda _, text: "output PASS" in text), _READER),
)
BITES = {row: mutation for mutation in MUTATIONS for row in mutation.rows}
"""The mutation of each row that has one."""
