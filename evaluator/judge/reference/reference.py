"""Execution of a problem's code by the judge: inputs, and expected outputs for these inputs.

The author of a problem is trusted. Prints of the code go to stderr; exceptions are errors of the problem.
"""

import contextlib
import copy
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Self

import torch

from evaluator.devices.out_of_memory import ran_out
from evaluator.errors import JudgeFailed, ProblemError
from evaluator.judge.compare.tolerance import ARITHMETIC, HALF
from evaluator.judge.reference.agreement import begins_and_ends_with, cut, row_splits, same_function
from evaluator.judge.reference.changing_weights import ChangingWeights
from evaluator.judge.reference.declared_formats import check_formats, input_forms
from evaluator.judge.reference.derived_seeds import derived
from evaluator.judge.reference.float64_convolutions import NARROW, float64_mode
from evaluator.judge.reference.input_distributions import change, rehearse
from evaluator.judge.reference.problem_module import ProblemModule
from evaluator.judge.reference.running_statistics import RunningStatistics, running_statistics
from evaluator.judge.tensors.call_arguments import Arguments, are_equal, cloned, storages, versions, wide, widened
from evaluator.judge.tensors.memory_overlap import Layouts, layouts
from evaluator.judge.tensors.pytree import Value
from evaluator.problem_code import author_code, refuse_other_layouts
from evaluator.protocol import model_call
from evaluator.protocol.model_call import seed_torch
from evaluator.protocol.pytree import leaves, mapped, tensors_of
from evaluator.records import CaseName, Formats, Problem, Profile


class Honest(NamedTuple):
    """Result of the plain reference, in the problem's precision.

    `borrowed` holds the paths of outputs in the memory of an input or of a weight.
    """

    result: model_call.Result
    borrowed: frozenset[str]


class Expected(NamedTuple):
    """Expected values of a call.

    `exact` is the value for the comparison, in float64 if the reference can run in float64 (`in_float64`). `honest` is
    the reference's result in the problem's precision, and shows the effect of rounding alone.
    """

    exact: model_call.Result
    honest: model_call.Result
    in_float64: bool
    borrowed: frozenset[str]


class Reference:
    """A problem at a given size, with given weights, on a device."""

    def __init__(self, problem: Problem, size: CaseName, weight_seed: int, device: str = "cpu") -> None:
        """Run the reference's file, construct `Model` under `weight_seed`, and move the model to `device`.

        Construction takes place on the CPU, as for a submission: both draw the same weights.
        """
        self.problem = problem
        self.matched_ratio = problem.matched_ratio(size)
        self.device = torch.device(device)
        """Device of the computation and of drawn inputs."""
        self._file = ProblemModule(problem, size)
        self.source, self.init = self._file.source, self._file.init
        self.author_check: Callable[[Value, Value], object] | None = (
            None if problem.check is None else self._file.namespace["check"]
        )
        self.benchmark_check: Callable[[Value, Value], object] | None = (
            self._file.namespace["check"] if problem.benchmark.is_check else None
        )
        self.model = self._file.construct(weight_seed)
        with self._author("Model(...).to(device)"):
            self.model.to(self.device)
        self.float64_ran_out = self.float64_must_fit = False  # `float64_must_fit` makes the lack a MemoryError.
        self.exact_model = self._in_float64()
        self.weights = ChangingWeights(self.model)
        self.weights_seed: int | None = None
        """Seed of the current weights; None for the constructed weights."""
        self._split = problem.split
        self._pieces = 0
        self._writes_inputs = True
        self.written: frozenset[int] = frozenset()
        """Numbers of the input tensors that forward writes into, counted over all input tensors."""
        self._keeps_inputs = True
        self.has_fixed_inputs = False
        """Whether `get_inputs` returns the same values for every seed."""
        self._always_in_float64 = False
        self._widens_casts = ARITHMETIC[problem.precision] in HALF
        """Whether the exact values are those without forward's casts: fused kernels keep fp32 between operations."""
        self.draws_numbers = False
        """Whether forward has drawn random numbers. These depend on a seed, and on no input."""
        self.running_statistics: RunningStatistics = {}
        """Statistics of the batch norms, as last returned by `state`: calls of the reference change the model's."""
        self.outline: Value = None
        self.layouts: Layouts = {}

    def draw(self, seed: int, profile: Profile = Profile.AS_GIVEN, decoy: Profile = Profile.AS_GIVEN) -> Arguments:
        """Return the inputs of a call. The seed comes from the operating system and never enters a runner.

        Inputs are detached from the graph of their construction; gradients are requested later. For inputs of the
        problem's own distribution, values of `decoy` are drawn and discarded: the time before a call must not reveal
        the distribution to a submission.
        """
        inputs = self._file.draw(seed, self.device)
        values_seed, forms = derived(seed, b"values"), input_forms(self.problem, self.model, inputs)
        if profile is Profile.AS_GIVEN:
            rehearse(decoy, [inputs.args, inputs.kwargs], values_seed, self.device, forms)
            return inputs
        writable_inputs = self.writable(inputs)
        return Arguments(*change(profile, self.problem.layouts, [*writable_inputs], values_seed, self.device, forms))

    def writable(self, inputs: Arguments) -> Arguments:
        """Return drawn inputs, or copies if `get_inputs` returns the same tensors in every call."""
        return cloned(inputs) if self._keeps_inputs else inputs

    def settle(self, inputs: Arguments, outputs: Value) -> Value:
        """Learn from a call the layout of outputs, the written inputs, and whether blocks reproduce the whole.

        Blocks do not reproduce an output that depends on all rows; a wrong `split` is ignored. Inputs that the
        reference writes into must be copied before each run, and the judge must not write into tensors that
        `get_inputs` keeps. Returns the outputs of a second call, of the first block. Raises ProblemError.
        """
        check_formats(self.problem, self.model, inputs, outputs)
        self.outline = mapped(outputs, lambda tensor: tensor.to("meta"))
        self.layouts = layouts(dict(leaves(outputs, "output")))
        some = cloned(self.blocks(inputs)[0])
        before = versions(some)
        with self._author("forward"):
            again = self._run(self.model, some, 0, None).outputs
        after = enumerate(zip(before, versions(some), strict=True))
        self.written = frozenset(index for index, (one, other) in after if one != other)
        self._writes_inputs = bool(self.written)
        del some
        other_inputs = self.draw(_OTHER_SEED)
        self._keeps_inputs = not storages(inputs).isdisjoint(storages(other_inputs))
        self.has_fixed_inputs = are_equal(inputs, other_inputs)
        if len(blocks := self.blocks(inputs)) > 1 and not self._follow_each_other(blocks, outputs):
            self._split = {}
        return again

    def check_formats(self) -> None:
        """Check the declared formats against a call. Raises ProblemError if one does not fit."""
        if self.problem.formats != Formats():
            inputs = self.draw(_OTHER_SEED)
            check_formats(self.problem, self.model, inputs, self.forward(inputs, 0))

    def split_rows(self, inputs: Arguments, outputs: Value, pieces: int) -> None:
        """Cut inputs into `pieces` along dimension 0, if blocks reproduce the first and last rows.

        For measurements and for causes of wrong answers: verdicts rest on the author's `split`, and on its blocks. If
        calls are computed in blocks, the first and the last of them stand for the whole: of `outputs` the shapes count.
        """
        coarse = self.blocks(inputs) if self.is_in_blocks(inputs) else []
        splits = [self._split] if self._split else row_splits(self.model, inputs, outputs)
        for split in splits:
            blocks = cut(self.model, inputs, split, pieces)
            if len(blocks) > 1 and (
                self._refine(blocks, coarse) if coarse else self._follow_each_other(blocks, outputs)
            ):
                self._split, self._pieces = split, pieces
                return

    def settle_float64(self, inputs: Arguments, gradients: list[torch.Tensor] | None) -> None:
        """Learn whether float64 can be computed, before a submission exists.

        If float64 fails, for lack of memory or by the reference's own code, calls are compared with the plain
        reference. If float64 works, every later call must succeed: else a submission that exhausts memory could choose
        the comparison.
        """
        block = inputs if gradients is not None else self.blocks(inputs)[0]
        if self._exact(block, 0, gradients) is None:
            self.leave_float64()
        for model in filter(None, (self.model, self.exact_model)):
            model.zero_grad(set_to_none=True)  # Unneeded gradients hold memory.
        self._always_in_float64 = self.exact_model is not None

    def leave_float64(self) -> None:
        """Compare all calls with the plain reference's values; the card states the choice."""
        self.exact_model, self._always_in_float64 = None, False

    def _follow_each_other(self, blocks: list[Arguments], outputs: Value) -> bool:
        """Return whether a call's outputs begin with the first block's outputs and end with the last block's."""
        try:
            first, last = (self.forward(block, 0) for block in (blocks[0], blocks[-1]))
        except ProblemError:  # Code for the whole input may fail on a part.
            return False
        return begins_and_ends_with(outputs, first, last)

    def _refine(self, blocks: list[Arguments], coarse: list[Arguments]) -> bool:
        """Return whether the outputs of coarse blocks begin and end with those of smaller blocks."""
        try:
            ends = (coarse[0], coarse[-1], blocks[0], blocks[-1])
            begin, end, first, last = (self.forward(block, 0) for block in ends)
        except ProblemError:  # as above
            return False
        return begins_and_ends_with(begin, first, begin) and begins_and_ends_with(end, end, last)

    def twin(self) -> Self:
        """Return a reference with copies of the models: state kept between calls does not reach the original.

        Raises:
            ProblemError: the model refuses to be copied.
        """
        other = copy.copy(self)
        with self._author("a copy of the model"):
            other.model, other.exact_model = copy.deepcopy((self.model, self.exact_model))
        return other

    def set_weights(self, seed: int | None) -> None:
        """Switch to the weights of the call with `seed`, or to the constructed weights if None."""
        if seed != self.weights_seed:
            self.weights_seed = seed
            self.weights.put(seed, [model for model in (self.model, self.exact_model) if model is not None])

    def parameters(self) -> dict[str, torch.Tensor]:
        """Return the current values of the parameters that change from call to call."""
        parameters = dict(self.model.named_parameters(remove_duplicate=False))
        return {name: parameters[name].detach() for name in self.weights.names}

    def state(self) -> dict[str, torch.Tensor]:
        """Switch to the constructed weights, and return these weights for a submission's model."""
        self.set_weights(None)
        self.running_statistics = running_statistics(self.model)
        return {name: tensor.detach() for name, tensor in self.model.state_dict().items()}

    def values(self, result: model_call.Result) -> dict[str, Value]:
        """Return the values of a result by path, as compared: a Python float becomes a tensor of one element."""
        return {
            path: self.number(value) if isinstance(value, float) else value for path, value in by_path(result).items()
        }

    def number(self, value: float) -> torch.Tensor:
        """Return a float as a tensor, in the dtype of the problem's arithmetic."""
        return torch.tensor(float(value), dtype=ARITHMETIC[self.problem.precision], device=self.device)

    def output_gradients(self, outputs: Value, seed: int) -> list[torch.Tensor]:
        """Draw the gradients for the backward pass: a standard normal tensor for each floating-point output."""
        generator = torch.Generator(self.device).manual_seed(seed)
        return [
            torch.randn(leaf.shape, generator=generator, dtype=torch.float64, device=self.device).to(leaf.dtype)
            for leaf in model_call.differentiable(outputs)
        ]

    def forward(self, inputs: Arguments, random_seed: int) -> Value:
        """Return the outputs of the plain reference."""
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
        """Return the reference's result, in float64 or plain, in the arithmetic of `mode`; see `arithmetic_modes`."""
        model = self.exact_model if in_float64 else self.model
        if model is None:
            raise TypeError("this reference has no float64")
        call_inputs = widened(inputs) if in_float64 else cloned(inputs)
        wide_mode = float64_mode(model if in_float64 else None, widens_casts=self._widens_casts)
        with self._author("forward"), wide_mode, mode:
            return self._run(model, call_inputs, random_seed, wide(gradients) if in_float64 else gradients)

    def expected_of_blocks(self, blocks: list[Arguments], random_seed: int) -> Iterator[Expected]:
        """Yield the expected values of each block. The first block decides for all whether float64 is comparable."""
        comparable = None
        for block in blocks:
            expected = self.expected(block, random_seed, None, comparable=comparable)
            comparable = expected.in_float64
            yield expected
            del expected  # The consumer no longer needs the block.

    def expected(
        self,
        inputs: Arguments,
        random_seed: int,
        gradients: list[torch.Tensor] | None,
        *,
        comparable: bool | None = None,
        honest: Honest | None = None,
    ) -> Expected:
        """Return the expected values of a call: in float64, and plain unless given as `honest`.

        Without `comparable`, the agreement of float64 with the plain result is tested.
        """
        plain, borrowed = honest or self.honest(inputs, random_seed, gradients)
        exact = None if comparable is False else self._exact(inputs, random_seed, gradients)
        if exact is None or not (comparable or same_function(exact, plain)):
            return Expected(plain, plain, in_float64=False, borrowed=borrowed)
        return Expected(exact, plain, in_float64=True, borrowed=borrowed)

    def honest(self, inputs: Arguments, random_seed: int, gradients: list[torch.Tensor] | None) -> Honest:
        """Return the reference's result in the problem's precision.

        Raises:
            ProblemError: forward writes into inputs in some calls only.
        """
        call_inputs = cloned(inputs) if self._writes_inputs or gradients is not None else inputs
        before = versions(call_inputs)
        with self._author("forward"):
            result = self._run(self.model, call_inputs, random_seed, gradients)
        if call_inputs is inputs and versions(call_inputs) != before:
            raise ProblemError(f"{self.problem.name}: forward changes its inputs in some calls only")
        return Honest(result, self._borrowed(result.outputs, call_inputs))

    def _exact(
        self, inputs: Arguments, random_seed: int, gradients: list[torch.Tensor] | None
    ) -> model_call.Result | None:
        if self.exact_model is None:
            if self.float64_must_fit and self.float64_ran_out:
                raise MemoryError("float64 does not fit")
            return None
        try:
            with contextlib.redirect_stdout(sys.stderr):
                with float64_mode(self.exact_model, widens_casts=self._widens_casts):
                    result = self._run(self.exact_model, widened(inputs), random_seed, wide(gradients))
                if self._widens_casts or not any(leaf.dtype in NARROW for leaf in tensors_of(result.outputs)):
                    return result
                self._widens_casts = True
            return self._exact(inputs, random_seed, gradients)
        except Exception as error:  # For example casts in the reference; the card then says NOT_FLOAT64.
            # Other exceptions come from the reference's own code, independent of free memory.
            if not isinstance(error, RuntimeError | MemoryError):
                return None
            if ran_out(error) and (self._always_in_float64 or self.float64_must_fit):
                raise MemoryError(f"float64 no longer fits: {error}") from None
            if not self._always_in_float64:
                return None
            message = f"the reference could be computed in float64, and no longer can: {type(error).__name__}: {error}"
            raise JudgeFailed(message) from error

    def _run(
        self, model: Callable[..., Any], inputs: Arguments, random_seed: int, gradients: list[torch.Tensor] | None
    ) -> model_call.Result:
        seed_torch(random_seed)
        before = None if self.draws_numbers else self._generators()
        outputs, result_gradients = model_call.readable(model_call.run(model, *inputs, gradients))
        refuse_other_layouts(self.problem.name, outputs, "the reference's forward")
        self.draws_numbers = before is None or not all(map(torch.equal, before, self._generators()))
        return model_call.Result(mapped(outputs, torch.Tensor.detach), result_gradients)

    def _generators(self) -> list[torch.Tensor]:
        """Return the states of PyTorch's generators, without a wait for the GPU."""
        states = [torch.default_generator.get_state()]
        return [*states, torch.cuda.get_rng_state()] if self.device.type == "cuda" else states

    def _borrowed(self, outputs: Value, inputs: Arguments) -> frozenset[str]:
        owners = [*self.model.parameters(), *self.model.buffers(), *tensors_of(list(inputs))]
        owned = {tensor.untyped_storage().data_ptr() for tensor in owners if tensor.numel()}
        return frozenset(
            path
            for path, leaf in leaves(outputs, "output")
            if isinstance(leaf, torch.Tensor) and leaf.numel() and leaf.untyped_storage().data_ptr() in owned
        )

    def is_in_blocks(self, inputs: Arguments) -> bool:
        """Return whether calls are computed in several blocks, which reproduced the whole in a first call."""
        return self.outline is not None and len(self.blocks(inputs)) > 1

    def blocks(self, inputs: Arguments) -> list[Arguments]:
        """Return the inputs in blocks by `split`; see `row_blocks.cut`."""
        return cut(self.model, inputs, self._split, self._pieces)

    def _in_float64(self) -> torch.nn.Module | None:
        try:
            wide: torch.nn.Module = copy.deepcopy(self.model).double()
        except Exception as error:  # noqa: BLE001 - a model that cannot be copied or cast: the card says NOT_FLOAT64
            self.float64_ran_out = ran_out(error)
            return None
        return wide

    def _author(self, doing: str) -> contextlib.AbstractContextManager[None]:
        return author_code(self.problem.path, doing)


_OTHER_SEED = 0


def by_path(result: model_call.Result) -> dict[str, Value]:
    """Return the outputs and gradients of a result by path."""
    gradients = {f"gradient of {name}": value for name, value in (result.gradients or {}).items()}
    return {**dict(leaves(result.outputs, "output")), **gradients}
