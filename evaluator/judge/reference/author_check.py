"""The problem's own `check(inputs, outputs)`: returns None for a right answer, and a message for a wrong one.

For answers that are right in many forms: factors of a matrix, eigenvectors, samples of a distribution. The author is
trusted; the values in the outputs are not.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from evaluator.devices.out_of_memory import out_of_memory
from evaluator.errors import ProblemError
from evaluator.judge.reference.reference import Reference
from evaluator.judge.tensors.call_arguments import Arguments
from evaluator.judge.tensors.pytree import Value
from evaluator.protocol.pytree import leaves, mapped, tensors_of

_LONGEST_MESSAGE = 400
OUT_OF_MEMORY = "check ran out of memory"


def refusal(reference: Reference, inputs: Arguments, outputs: Value) -> str | None:
    """Return the message of the problem's check on an answer; None if it accepts, or if the problem has no check.

    The check gets copies. With integers among the outputs, they are on the CPU: an index out of range would end the
    judge's GPU context. A check that raises an exception, runs out of memory or returns anything but None refuses the
    answer: it may hold values that no right answer has.
    """
    return None if reference.author_check is None else refusal_by(reference.author_check, inputs, outputs)


def refusal_by(check: Callable[[Value, Value], object], inputs: Arguments, outputs: Value) -> str | None:
    """Return the message of a check on an answer; None if accepted."""
    try:
        with contextlib.redirect_stdout(sys.stderr), torch.no_grad(), out_of_memory():
            message = check(*_copies(inputs, outputs))
    except MemoryError:
        message = OUT_OF_MEMORY
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the author's code, on values of a submission
        message = f"check raised {type(error).__name__}: {error}"
    if message is None:
        return None
    text = message if isinstance(message, str) else f"check returned a {type(message).__name__}, not None or a message"
    return " ".join(text.split())[:_LONGEST_MESSAGE] or "check returned an empty message"


def _copies(inputs: Arguments, outputs: Value) -> tuple[Value, Value]:
    integers = any(not (each.is_floating_point() or each.is_complex()) for each in tensors_of(outputs))

    def copied(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().to("cpu", copy=True) if integers else tensor.detach().clone()

    return mapped(inputs.kwargs or inputs.args, copied), mapped(outputs, copied)


def require_own_answer(
    check: Callable[[Value, Value], object], problem_name: str, inputs: Arguments, outputs: Value
) -> None:
    """Raise ProblemError if a check refuses the reference's own answer."""
    if (message := refusal_by(check, inputs, outputs)) is not None:
        raise ProblemError(f"{problem_name}: check refuses the answer of Model itself: {message}")


def with_answers(outputs: Value, answers: Mapping[str, torch.Tensor], path: str = "output") -> Value:
    """Return the outputs of the reference with the answer's tensors and floats (by path) in their places."""
    if isinstance(outputs, list | tuple):
        items = [with_answers(item, answers, f"{path}[{index}]") for index, item in enumerate(outputs)]
        return tuple(items) if isinstance(outputs, tuple) else items
    if isinstance(outputs, Mapping):
        return {key: with_answers(item, answers, f"{path}.{key}") for key, item in outputs.items()}
    if path not in answers:
        return outputs
    return answers[path] if isinstance(outputs, torch.Tensor) else answers[path].item()


def refuses_wrong_answers(reference: Reference, inputs: Arguments, right: Value, other: Value) -> bool:
    """Return whether the check refuses an answer with one surely wrong output, for each output of the answer `right`.

    Wrong are the output of `other` inputs, zeros, and NaN, unless they are right. An output without any is no evidence.
    """
    others = dict(leaves(other, "output"))
    for path, tensor in leaves(right, "output"):
        if not isinstance(tensor, torch.Tensor):
            continue
        wrong = [each for each in _wrong(tensor, others.get(path)) if not torch.equal(each, tensor)]
        if not wrong or any(refusal(reference, inputs, with_answers(right, {path: each})) is None for each in wrong):
            return False
    return True


def _wrong(right: torch.Tensor, other: Any) -> Iterator[torch.Tensor]:
    if isinstance(other, torch.Tensor) and (other.shape, other.dtype) == (right.shape, right.dtype):
        yield other
    yield torch.zeros_like(right)
    if right.is_floating_point() or right.is_complex():
        yield torch.full_like(right, torch.nan)
