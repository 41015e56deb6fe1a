"""Plan of one call: inputs, seeds, gradients, row blocks, and what the reference computes for the call."""

import functools
from collections.abc import Iterator, Sequence

import torch

from evaluator.judge.reference.cancelling_rows import Slices, chosen_rows, slices_of, write_rows
from evaluator.judge.reference.derived_seeds import derived
from evaluator.judge.reference.reference import Expected, Honest, Reference
from evaluator.judge.tensors.call_arguments import Arguments
from evaluator.protocol import model_call
from evaluator.records import Profile, RowSite


class CallPlan:
    """All facts of one call that follow from its seed, from the reference's current weights onwards."""

    def __init__(
        self,
        reference: Reference,
        seed: int,
        *,
        profile: Profile = Profile.AS_GIVEN,
        decoy: Profile = Profile.AS_GIVEN,
        random_seed: int | None = None,
        row_sites: Sequence[RowSite] = (),
    ) -> None:
        """Draw the inputs and the gradients of the outputs, and cut the inputs into blocks.

        `decoy` is drawn and discarded (`DistributionMix.decoy`). `random_seed` seeds PyTorch's generators before
        forward; without a value, the seed follows from `seed`. With the problem's own values, secret rows at
        `row_sites` cancel; `slices` are the dependent parts of the outputs. Problems with a backward pass have one
        block.
        """
        self.reference = reference
        self.seed = seed
        self.profile = profile
        self.random_seed = derived(seed, b"in forward") if random_seed is None else random_seed
        self.inputs: Arguments = reference.draw(seed, profile, decoy)
        self.slices = self._write_rows(row_sites)
        self.gradients = self._output_gradients()
        self.blocks = reference.blocks(self.inputs) if self.gradients is None else [self.inputs]

    def _write_rows(self, row_sites: Sequence[RowSite]) -> dict[str, list[Slices]]:
        rows = chosen_rows(row_sites, self.inputs, derived(self.seed, b"which rows"))
        keep = self.profile is Profile.AS_GIVEN
        if rows and keep:
            self.inputs = self.reference.writable(self.inputs)
        # Other calls take the same time, so that no submission recognises them.
        write_rows(rows, self.inputs, derived(self.seed, b"rows"), keep=keep)
        return slices_of(rows) if keep else {}

    def _output_gradients(self) -> list[torch.Tensor] | None:
        if not self.reference.problem.backward:
            return None
        outputs = self.reference.forward(self.inputs, self.random_seed)
        return self.reference.output_gradients(outputs, derived(self.seed, b"gradients"))

    @functools.cached_property
    def whole(self) -> Honest | None:
        """Plain result of the whole call; None if the reference is computed in several blocks."""
        if len(self.blocks) > 1:
            return None
        return self.reference.honest(self.inputs, self.random_seed, self.gradients)

    @property
    def plain(self) -> Honest | None:
        """Plain result of the whole call, if known: nothing is computed."""
        whole: Honest | None = self.__dict__.get("whole")
        return whole

    def forget(self) -> None:
        """Free the plain result, which takes the memory of a call's outputs."""
        self.__dict__.pop("whole", None)

    def wanted(self, outline: model_call.Result) -> model_call.Result:
        """Return the plain result, or its shapes `outline` if the reference is computed in several blocks."""
        return outline if self.whole is None else self.whole.result

    def expected(self) -> Iterator[Expected]:
        """Yield the expected values of each block."""
        if self.whole is None:
            yield from self.reference.expected_of_blocks(self.blocks, self.random_seed)
        else:
            yield self.reference.expected(self.blocks[0], self.random_seed, self.gradients, honest=self.whole)

    def honest(self) -> Iterator[Honest]:
        """Yield the plain result of each block."""
        if self.whole is None:
            yield from (self.reference.honest(block, self.random_seed, None) for block in self.blocks)
        else:
            yield self.whole
