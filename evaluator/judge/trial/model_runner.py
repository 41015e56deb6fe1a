"""Runner with shared memory, in which a submission or the reference is loaded, constructed and called."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from msgspec.structs import replace

from evaluator.catalog import sized_source
from evaluator.devices.memory import SharedMemory
from evaluator.judge.clock.clock import Clock
from evaluator.judge.compare.tensor_comparison import Comparison
from evaluator.judge.reference.changing_weights import Sites, sites_of
from evaluator.judge.reference.reference import Reference
from evaluator.judge.runners.call_timeouts import call_timeouts
from evaluator.judge.runners.runner_client import RunnerClient
from evaluator.judge.setup.distribution_mix import DistributionMix
from evaluator.judge.setup.grade_terms import GradeTerms
from evaluator.judge.tensors.pytree import lay_out
from evaluator.judge.trial.trial_runner import TrialRunner
from evaluator.protocol.frames import Construct, Constructed, DictItems, Load
from evaluator.protocol.frames.values import ModelMode
from evaluator.records import DeviceKind, Fault, Mode, Precision, Problem, Tf32, WeightsRule
from evaluator.submission.model_new import NAME

IMPORT_TIMEOUT_S = 60.0
"""Time limit for loading a submission, and for constructing the model. Builds have a separate limit."""


FROZEN_BY_RULE = "weights were to stay as they were constructed"


class ModelSpec(NamedTuple):
    """Construction and comparison of a model, equal for both sides of a grade.

    `reference_s` is the duration of the reference's first call.
    """

    terms: GradeTerms
    reference: Reference
    reference_s: float
    weight_seed: int
    distribution_mix: DistributionMix
    compare: Comparison


class ModelRunner(NamedTuple):
    """A runner and its shared memory, before and after loading the submission.

    `kernel_cache` holds the kernels that an earlier runner of the same submission compiled. `seeded_because` is the
    reason why the model keeps the seeded weights, unless all names and values are the reference's; None to copy
    the reference's. `in_training`: `train()` follows the construction. `entries` are the names of the class to load. A
    `trusted` source is a form of the reference.
    """

    spec: ModelSpec
    source: str
    session: RunnerClient
    memory: SharedMemory
    clock: Clock
    kernel_cache: bytes = b""
    seeded_because: str | None = None
    in_training: bool = False
    entries: tuple[str, ...] = (NAME,)
    trusted: bool = False

    def load(self, tf32: Tf32 | None = None, meanwhile: Callable[[], object] | None = None) -> Fault | None:
        """Load the submission with the TF32 setting `tf32`; None means the problem's own setting.

        The judge calls `meanwhile` while the runner loads.
        """
        frame, descriptors = self._load(tf32), self.memory.descriptors
        return self.session.load(frame, descriptors, timeout_s=self._timeout_s, meanwhile=meanwhile)

    def construct(self) -> Constructed | Fault:
        """Construct ModelNew like the reference, and copy the reference's weights."""
        return self.session.construct(self._construct(), timeout_s=self._timeout_s)

    def begin(self) -> Fault | None:
        """Send the requests of `load` and `construct` without waiting; `begun` waits for both answers."""
        load, construct = self._load(None), self._construct()
        return self.session.begin(load, construct, self.memory.descriptors, timeout_s=self._timeout_s)

    def begun(self) -> Constructed | Fault:
        """Wait for the answers to `begin`."""
        return self.session.begun(self._timeout_s)

    @property
    def _timeout_s(self) -> float:
        return import_timeout_s(self.spec.terms)

    def _load(self, tf32: Tf32 | None) -> Load:
        frame = load_frame(self.spec.terms, self.source, self.memory, self.spec.terms.device, tf32)
        return replace(frame, kernel_cache=self.kernel_cache, entries=list(self.entries))

    def sites(self, constructed: Constructed) -> Sites:
        """Return the locations of the changing weights in the runner."""
        reference, terms = self.spec.reference, self.spec.terms
        if terms.weights is WeightsRule.FROZEN:
            return Sites({}, FROZEN_BY_RULE)
        if reference.weights.why_not is not None:
            return Sites({}, reference.weights.why_not)
        if self.seeded_because is not None:
            return Sites({}, self.seeded_because, unmatched=True)
        return sites_of(reference.parameters(), constructed.weights, self.memory.outputs)

    @property
    def _changing(self) -> list[str]:
        frozen = self.spec.terms.weights is WeightsRule.FROZEN or self.seeded_because is not None
        return [] if frozen else list(self.spec.reference.weights.names)

    def _construct(self) -> Construct:
        """Write the constructor's arguments and the weights to shared memory, and return the request."""
        reference, terms = self.spec.reference, self.spec.terms
        values = [("init", reference.init.args), ("init", reference.init.kwargs), ("state", reference.state())]
        placed = lay_out(list(values), self.memory.inputs)
        placed.write()
        if terms.gpu is not None:
            torch.cuda.synchronize()
        args, kwargs, state = placed.nodes
        if not isinstance(state, DictItems):
            raise TypeError("a state_dict is a table")
        return Construct(
            weight_seed=self.spec.weight_seed,
            mode=model_mode(terms.problem, in_training=self.in_training),
            args=args,
            kwargs=kwargs,
            state=state,
            changing=self._changing,
            parameters=list(reference.weights.trained),
            seeded=self.seeded_because is not None,
        )

    def trial_runner(self, sites: Sites) -> TrialRunner:
        """Return a trial runner for the loaded model, with weights changed at `sites`."""
        reference, terms = self.spec.reference, self.spec.terms
        return TrialRunner(
            reference,
            self.clock,
            self.memory,
            terms.options.tolerance,
            self.spec.compare,
            self.spec.distribution_mix,
            first_call_s=call_timeouts(
                self.source, terms.device, self.spec.reference_s, terms.options.timeout_s
            ).first_call_s,
            sites=sites,
            source=self.source,
            trusted=self.trusted,
        )


def load_frame(
    terms: GradeTerms, source: str, memory: SharedMemory, device: DeviceKind, tf32: Tf32 | None = None
) -> Load:
    """Return the request to load the submission `source` beside the problem's own text."""
    return Load(
        submission=source,
        entries=list(terms.options.entries),
        model=sized_source(terms.problem, terms.size),
        input_bytes=memory.inputs.size_bytes,
        output_bytes=memory.outputs.size_bytes,
        copy_bytes=memory.copy_bytes,
        device=device.value,
        library=memory.library is not None,
        threads=terms.threads,
        tf32=(own_tf32(terms.problem) if tf32 is None else tf32).value,
        probe_bytes=memory.probe_bytes,
    )


def model_mode(problem: Problem, *, in_training: bool) -> ModelMode:
    """Return the mode of ModelNew: as constructed, unless the problem or a second try sets another."""
    if problem.mode is Mode.EVAL:
        return ModelMode.EVAL
    return ModelMode.TRAIN if in_training else ModelMode.AS_CONSTRUCTED


def import_timeout_s(terms: GradeTerms) -> float:
    """Return the time limit for loading a submission, and for constructing the model."""
    return IMPORT_TIMEOUT_S if terms.options.timeout_s is None else terms.options.timeout_s


def own_tf32(problem: Problem) -> Tf32:
    """Return the TF32 setting that the problem's precision allows on both sides."""
    return Tf32.ON if problem.precision is Precision.TF32 else Tf32.OFF
