"""The problem's own `check(inputs, outputs)`: returns None for a right answer, and a message for a wrong one.

For answers that are right in many forms: factors of a matrix, eigenvectors, samples of a distribution. The author is
trusted; the values in the outputs are not.
"""

import contextlib
import sys
from collections.abc import Mapping

import torch

from evaluator.devices.out_of_memory import out_of_memory, ran_out
from evaluator.errors import ProblemError
from evaluator.judge.reference.reference import Reference
from evaluator.judge.tensors.call_arguments import Arguments
from evaluator.judge.tensors.pytree import Value
from evaluator.protocol.pytree import leaves, mapped
from evaluator.records import CheckRule

_LONGEST_MESSAGE = 400


def refusal(reference: Reference, inputs: Arguments, outputs: Value) -> str | None:
    """Return the message of the problem's check on an answer; None if it accepts, or if the problem has no check.

    An exception of the check counts as a refusal: an answer may hold values that no right answer has.

    Raises:
        ProblemError: the check returns neither None nor a message.
        MemoryError: memory is too small for the check.
    """
    if reference.author_check is None:
        return None
    try:
        with contextlib.redirect_stdout(sys.stderr), torch.no_grad(), out_of_memory():
            message = reference.author_check(inputs.kwargs or inputs.args, outputs)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - the author's code, on values of a submission
        if ran_out(error):
            raise MemoryError(str(error)) from None
        message = f"check raised {type(error).__name__}: {error}"
    if message is None:
        return None
    if not isinstance(message, str) or not message.strip():
        kind = type(message).__name__
        raise ProblemError(
            f"{reference.problem.name}: check returned {kind if not isinstance(message, str) else 'an empty text'}",
            hint="return None for a right answer, and a message for a wrong one",
        )
    return " ".join(message.split())[:_LONGEST_MESSAGE]


def require_own_answer(reference: Reference, inputs: Arguments, outputs: Value) -> None:
    """Raise ProblemError if the check refuses the reference's own answer, or cannot decide about all outputs."""
    name = reference.problem.name
    if (message := refusal(reference, inputs, outputs)) is not None:
        raise ProblemError(f"{name}: check refuses the answer of Model itself: {message}")
    floats = [path for path, leaf in leaves(outputs, "output") if isinstance(leaf, float)]
    if reference.problem.check is CheckRule.INSTEAD and floats:
        raise ProblemError(f'{name}: {floats[0]} is a float, and check = "instead" needs outputs that are tensors')


def with_tensors(outputs: Value, tensors: Mapping[str, torch.Tensor]) -> Value:
    """Return the outputs of the reference with copies of the answer's `tensors` (by path) in their places."""
    paths = iter([path for path, leaf in leaves(outputs, "output") if isinstance(leaf, torch.Tensor)])
    return mapped(outputs, lambda _: tensors[next(paths)].clone())


def refuses_wrong_answers(reference: Reference, inputs: Arguments, other: Value) -> bool:
    """Return whether the check refuses surely wrong answers to `inputs`: `other`, of other inputs, zeros, and NaN."""
    wrong = [other, mapped(other, torch.zeros_like), mapped(other, _not_a_number)]
    return all(refusal(reference, inputs, answer) is not None for answer in wrong)


def _not_a_number(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of NaN, or of zeros where the dtype has none."""
    has_nan = tensor.is_floating_point() or tensor.is_complex()
    return torch.full_like(tensor, torch.nan) if has_nan else torch.zeros_like(tensor)
