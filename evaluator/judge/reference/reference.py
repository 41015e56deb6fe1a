"""The problem's own code, run by the judge: it draws the inputs and computes what is expected of them.

A problem's author is trusted; what its code prints goes to stderr, and what it raises is the problem's error.
"""

import contextlib
import copy
import random
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple, Self

import torch

from evaluator.catalog import sized_source
from evaluator.devices.out_of_memory import ran_out
from evaluator.errors import JudgeFailed, ProblemError
from evaluator.judge.compare.tolerance import ARITHMETIC
from evaluator.judge.inputs.changing_weights import ChangingWeights
from evaluator.judge.inputs.derived_seeds import derived
from evaluator.judge.inputs.input_distributions import change, rehearse
from evaluator.judge.reference.float64_agreement import same_function
from evaluator.judge.reference.problem_code import author_code
from evaluator.judge.reference.row_blocks import begins_and_ends_with, cut
from evaluator.judge.tensors.call_arguments import Arguments, cloned, storages, versions, wide, widened
from evaluator.judge.tensors.memory_overlap import Layouts, layouts
from evaluator.judge.tensors.pytree import Value, is_number, leaves, tensors
from evaluator.protocol import model_call
from evaluator.protocol.model_call import mapped
from evaluator.protocol.seeding import seed_torch
from evaluator.records import Mode, Problem, Profile, SizeName


class Honest(NamedTuple):
    """What the reference itself answers, in the problem's precision.

    `borrowed` are the paths of outputs that lie in the memory of an input or of a weight.
    """

    result: model_call.Result
    borrowed: frozenset[str]


class Expected(NamedTuple):
    """What a call should give.

    `exact` is the value to compare with, in float64 where the reference can be run so (`in_float64`); `honest` is
    the reference's own result in the problem's precision, which says what rounding alone does.
    """

    exact: model_call.Result
    honest: model_call.Result
    in_float64: bool
    borrowed: frozenset[str]


class Reference:
    """A problem at one size, with one set of weights, on one device."""

    def __init__(self, problem: Problem, size: SizeName, weight_seed: int, device: str = "cpu") -> None:
        """Run the reference's file, construct its `Model` under `weight_seed` and move it to `device`.

        It is made on the CPU wherever it runs, as a submission's is: then both draw the same weights.
        """
        self.problem = problem
        self._device = torch.device(device)
        self.source = sized_source(problem, size)
        self._module = ModuleType("model")
        # dataclasses and torch.jit look a class's module up by its name.
        sys.modules["model"] = self._module
        with self._author("reading it"):
            exec(compile(self.source, problem.path, "exec"), self._module.__dict__)  # noqa: S102 - the author's own code
        self.init = self._arguments("get_init_inputs")
        with self._author("Model(...)"):
            seed_torch(weight_seed)
            self.model = self._module.__dict__["Model"](*self.init.args, **self.init.kwargs)
            self.model.train(problem.mode is Mode.TRAIN)
            self.model.to(self._device)
        self.exact_model = self._in_float64()
        self.weights = ChangingWeights(self.model)
        self._worn: int | None = None
        self._split = problem.split
        self._writes_inputs = True
        self.written: frozenset[int] = frozenset()
        """Which of a call's input tensors forward writes into, by their number among all of them."""
        self._keeps_inputs = True
        self._always_in_float64 = False
        self.draws_numbers = False
        """Whether forward has drawn random numbers: those follow from a seed, and from no input."""
        self.outline: Value = None
        self.layouts: Layouts = {}

    @property
    def device(self) -> torch.device:
        """Say where the reference computes, and where inputs are drawn."""
        return self._device

    def draw(self, seed: int, profile: Profile = Profile.AS_GIVEN, decoy: Profile = Profile.AS_GIVEN) -> Arguments:
        """Draw the inputs of one call. The seed comes from the operating system and never enters a runner.

        An input that was made to require gradients is cut off from how it was made: gradients are asked for later.
        Where the values stay as given, those of `decoy` are drawn and thrown away: the time until a call should not
        tell a submission which values it has.
        """
        seed_torch(seed)
        random.seed(seed)
        with self._device:  # Where the author's code names no device, inputs are drawn where they are used.
            inputs = self._arguments("get_inputs")
        given = Arguments(mapped(inputs.args, self._own), mapped(inputs.kwargs, self._own))
        values_seed = derived(seed, b"values")
        if profile is Profile.AS_GIVEN:
            rehearse(decoy, [given.args, given.kwargs], values_seed, self._device)
            return given
        own = cloned(given) if self._keeps_inputs else given
        return Arguments(*change(profile, self.problem.layouts, [own.args, own.kwargs], values_seed, self._device))

    def _own(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().to(self._device)

    def settle(self, inputs: Arguments, outputs: Value) -> None:
        """Learn from one call what outputs look like, and whether blocks give what the whole gives.

        They do not where an output depends on all rows; a `split` that says otherwise is left out of account. Also
        learn which inputs the reference writes into (they must be copied before it sees them), and whether
        `get_inputs` gives tensors that it keeps: those are not ours to write into.
        """
        self.outline = mapped(outputs, lambda tensor: tensor.to("meta"))
        self.layouts = layouts(dict(leaves(outputs, "output")))
        some = cloned(self.blocks(inputs)[0])
        before = versions(some)
        with self._author("forward"):
            self._run(self.model, some, 0, None)
        after = enumerate(zip(before, versions(some), strict=True))
        self.written = frozenset(index for index, (one, other) in after if one != other)
        self._writes_inputs = bool(self.written)
        del some
        self._keeps_inputs = not storages(inputs).isdisjoint(storages(self.draw(0)))
        blocks = self.blocks(inputs)
        if len(blocks) > 1 and not self._follow_each_other(blocks, outputs):
            self._split = {}

    def settle_float64(self, inputs: Arguments, gradients: list[torch.Tensor] | None) -> None:
        """Learn whether float64 can be computed at all, while nothing of a submission is there.

        Where it cannot, for want of memory or by the reference's own code, calls are held against the plain reference.
        Where it can it must be in every call from here on: else who takes the memory away would choose.
        """
        block = inputs if gradients is not None else self.blocks(inputs)[0]
        if self._exact(block, 0, gradients) is None:
            self.leave_float64()
        for model in filter(None, (self.model, self.exact_model)):
            model.zero_grad(set_to_none=True)  # Nobody asks for these, and they hold memory.
        self._always_in_float64 = self.exact_model is not None

    def leave_float64(self) -> None:
        """Hold all calls against the plain reference's own values; the card says so."""
        self.exact_model, self._always_in_float64 = None, False

    def _follow_each_other(self, blocks: list[Arguments], outputs: Value) -> bool:
        """Hold a call's outputs against those of its first and of its last block."""
        try:
            first, last = (self.forward(block, 0) for block in (blocks[0], blocks[-1]))
        except ProblemError:  # What needs the whole input may fail on a part of it.
            return False
        return begins_and_ends_with(outputs, first, last)

    def twin(self) -> Self:
        """Give a reference with models of its own: what those keep from call to call leaves no trace on this one's."""
        other = copy.copy(self)
        other.model, other.exact_model = copy.deepcopy((self.model, self.exact_model))
        return other

    def wear(self, seed: int | None) -> None:
        """Compute with the weights of the call with `seed` from here on, or with those that were constructed."""
        if seed != self._worn:
            self._worn = seed
            self.weights.put(seed, [model for model in (self.model, self.exact_model) if model is not None])

    def parameters(self) -> dict[str, torch.Tensor]:
        """Give those parameters that change from call to call, as they are now."""
        known = dict(self.model.named_parameters(remove_duplicate=False))
        return {name: known[name].detach() for name in self.weights.names}

    def settle_weights(self, inputs: Arguments) -> None:
        """Learn whether the reference bears other weights: where it gives no finite numbers with them, they stay.

        Where it bears no other signs, those stay. One whose output does not depend on its weights bears any.
        """
        if not self.weights.names:
            return
        first = _finite_parts(self.forward(inputs, 0))
        why_not = self._refusal_of_weights(inputs, first)
        if why_not is not None and self.weights.keep_signs():
            why_not = self._refusal_of_weights(inputs, first)
        if why_not is not None:
            self.weights.leave(why_not)

    def _refusal_of_weights(self, inputs: Arguments, first: list[torch.Tensor]) -> str | None:
        """Say why the reference bears no other weights; None where it does."""
        try:
            for seed in _TRIED_WEIGHTS:
                self.wear(seed)
                if not _still_finite(first, self.forward(inputs, 0)):
                    return "the reference gives no finite numbers with other weights"
        except ProblemError as refusal:
            return f"the reference refuses other weights: {refusal.message}"[:200]
        finally:
            self.wear(None)
        return None

    def state(self) -> dict[str, torch.Tensor]:
        """Give the weights that a submission's model receives: those that were constructed, worn from here on."""
        self.wear(None)
        return {name: tensor.detach() for name, tensor in self.model.state_dict().items()}

    def values(self, result: model_call.Result) -> dict[str, Value]:
        """List what a call gave by path, as it is compared: a Python float as a tensor of one element."""
        return {path: self.number(value) if is_number(value) else value for path, value in by_path(result).items()}

    def number(self, value: float) -> torch.Tensor:
        """Make a tensor of a float, of the dtype that the problem computes in."""
        return torch.tensor(float(value), dtype=ARITHMETIC[self.problem.precision], device=self._device)

    def output_gradients(self, outputs: Value, seed: int) -> list[torch.Tensor]:
        """Draw what is propagated back: one standard normal tensor for each floating-point output."""
        generator = torch.Generator(self._device).manual_seed(seed)
        return [
            torch.randn(leaf.shape, generator=generator, dtype=torch.float64, device=self._device).to(leaf.dtype)
            for leaf in tensors(outputs)
            if leaf.is_floating_point()
        ]

    def forward(self, inputs: Arguments, random_seed: int) -> Value:
        """Run the plain reference once."""
        with self._author("forward"):
            return self._run(self.model, cloned(inputs), random_seed, None).outputs

    def altered(
        self,
        inputs: Arguments,
        random_seed: int,
        gradients: list[torch.Tensor] | None,
        mode: contextlib.AbstractContextManager[None],
        *,
        in_float64: bool = False,
    ) -> model_call.Result:
        """Run the reference, in float64 or plainly, with its arithmetic changed by `mode` (see `arithmetic_modes`)."""
        model = self.exact_model if in_float64 else self.model
        if model is None:
            raise TypeError("this reference has no float64")
        own = widened(inputs) if in_float64 else cloned(inputs)
        with self._author("forward"), mode:
            return self._run(model, own, random_seed, wide(gradients) if in_float64 else gradients)

    def expected_of_blocks(self, blocks: list[Arguments], random_seed: int) -> Iterator[Expected]:
        """Compute what each block of a call should give. The first one tells for all whether float64 is comparable."""
        comparable = None
        for block in blocks:
            found = self.expected(block, random_seed, None, comparable=comparable)
            comparable = found.in_float64
            yield found
            del found  # Whoever asks for the next is done with this one.

    def expected(
        self,
        inputs: Arguments,
        random_seed: int,
        gradients: list[torch.Tensor] | None,
        *,
        comparable: bool | None = None,
        honest: Honest | None = None,
    ) -> Expected:
        """Compute what a call should give: honestly, unless `honest` is that already, and in float64.

        Whether float64 computes the same thing is looked at where `comparable` does not say it.
        """
        plain, borrowed = honest or self.honest(inputs, random_seed, gradients)
        exact = None if comparable is False else self._exact(inputs, random_seed, gradients)
        if exact is None or not (comparable or same_function(exact, plain)):
            return Expected(plain, plain, in_float64=False, borrowed=borrowed)
        return Expected(exact, plain, in_float64=True, borrowed=borrowed)

    def honest(self, inputs: Arguments, random_seed: int, gradients: list[torch.Tensor] | None) -> Honest:
        """Have the reference answer in the problem's precision."""
        own = cloned(inputs) if self._writes_inputs or gradients is not None else inputs
        before = versions(own)
        with self._author("forward"):
            result = self._run(self.model, own, random_seed, gradients)
        if own is inputs and versions(own) != before:
            raise ProblemError(f"{self.problem.name}: forward changes its inputs in some calls only")
        return Honest(result, self._borrowed(result.outputs, own))

    def _exact(
        self, inputs: Arguments, random_seed: int, gradients: list[torch.Tensor] | None
    ) -> model_call.Result | None:
        if self.exact_model is None:
            return None
        try:
            with contextlib.redirect_stdout(sys.stderr):
                return self._run(self.exact_model, widened(inputs), random_seed, wide(gradients))
        except Exception as error:  # A reference with casts of its own; the card then says NOT_FLOAT64.
            # What raises anything else does so by its own code, whoever has the memory.
            if not self._always_in_float64 or not isinstance(error, RuntimeError | MemoryError):
                return None
            if ran_out(error):
                raise MemoryError(f"float64 no longer fits: {error}") from None
            message = f"the reference could be computed in float64, and no longer can: {type(error).__name__}: {error}"
            raise JudgeFailed(message) from error

    def _run(
        self, model: Callable[..., Any], inputs: Arguments, random_seed: int, gradients: list[torch.Tensor] | None
    ) -> model_call.Result:
        seed_torch(random_seed)
        before = None if self.draws_numbers else self._generators()
        outputs, found = model_call.readable(model_call.run(model, *inputs, gradients))
        self.draws_numbers = before is None or not _equal(before, self._generators())
        return model_call.Result(mapped(outputs, torch.Tensor.detach), found)

    def _generators(self) -> list[torch.Tensor]:
        """Give the states of PyTorch's generators; to look at that of a GPU nothing is waited for."""
        states = [torch.default_generator.get_state()]
        return [*states, torch.cuda.get_rng_state()] if self._device.type == "cuda" else states

    def _borrowed(self, outputs: Value, inputs: Arguments) -> frozenset[str]:
        owners = [*self.model.parameters(), *self.model.buffers(), *tensors(list(inputs))]
        owned = {tensor.untyped_storage().data_ptr() for tensor in owners if tensor.numel()}
        return frozenset(
            path
            for path, leaf in leaves(outputs, "output")
            if isinstance(leaf, torch.Tensor) and leaf.numel() and leaf.untyped_storage().data_ptr() in owned
        )

    def blocks(self, inputs: Arguments) -> list[Arguments]:
        """Cut the inputs as `split` says; see `row_blocks.cut`."""
        return cut(self.model, inputs, self._split)

    def _in_float64(self) -> torch.nn.Module | None:
        try:
            wide: torch.nn.Module = copy.deepcopy(self.model).double()
        except Exception:  # noqa: BLE001 - a model that cannot be copied or cast; the card then says NOT_FLOAT64
            return None
        return wide

    def _arguments(self, function: str) -> Arguments:
        with self._author(f"{function}()"):
            value = self._module.__dict__[function]()
        if isinstance(value, dict):
            return Arguments([], {str(key): item for key, item in value.items()})
        if isinstance(value, list | tuple):
            return Arguments(list(value), {})
        raise ProblemError(
            f"{self.problem.name}: {function}() returns a {type(value).__name__}",
            hint="return a list of positional arguments, or a dict of keyword arguments",
        )

    def _author(self, doing: str) -> contextlib.AbstractContextManager[None]:
        return author_code(self.problem, doing)


_TRIED_WEIGHTS = (1, 2, 3)


def by_path(result: model_call.Result) -> dict[str, Value]:
    """List what a call gave by path: its outputs, and its gradients."""
    gradients = {f"gradient of {name}": value for name, value in (result.gradients or {}).items()}
    return {**dict(leaves(result.outputs, "output")), **gradients}


def _equal(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(before, after) for before, after in zip(one, other, strict=True))


def _finite_parts(value: Value) -> list[torch.Tensor]:
    return [torch.isfinite(leaf) for leaf in tensors(value)]


def _still_finite(before: list[torch.Tensor], value: Value) -> bool:
    """Say whether all that was finite before is so."""
    now = _finite_parts(value)
    same = len(now) == len(before) and all(one.shape == other.shape for one, other in zip(before, now, strict=True))
    return same and all(bool((other | ~one).all()) for one, other in zip(before, now, strict=True))
