"""A separate process for the search of a problem's small size: the reference's source in, constants out.

The judge trusts a problem's code like its author, but a forward of excessive size must not kill the judge. Smallness is
counted and not timed, so a busy machine finds the same size.
"""

import contextlib
import json
import socket
from pathlib import Path
from typing import NamedTuple

import torch

from evaluator.catalog.reference import read_reference, with_constants
from evaluator.problem_process import serve
from evaluator.protocol import model_call
from evaluator.records import Constant
from evaluator.roofline.work_count import arguments, registered
from evaluator.sizes.degenerate import FILE, Operation, Operations, made_one
from evaluator.sizes.scaling import candidates


class Most(NamedTuple):
    """Limits on the elements of inputs or weights, and on the output elements of all operations in one forward."""

    given: int
    made: int


MOST = (Most(1 << 18, 1 << 22), Most(1 << 21, 1 << 24), Most(1 << 25, 1 << 27))
"""Two square matrices of 256 fit the first limit. A whole network has weights that no constant reduces."""
_SEED = 0


class Traced(NamedTuple):
    """One forward: its operations, and the number of input and output elements."""

    operations: list[Operation]
    size: Most

    def is_within(self, most: Most) -> bool:
        """Return whether the forward is within the limits."""
        return self.size.given <= most.given and self.size.made <= most.made


class NoAnswer(Exception):
    """A forward without output, or without finite output."""


def find(source: str) -> dict[str, Constant] | None:
    """Return the largest constants at which the reference runs, is small, and keeps dimensions above 1, or None."""
    full = {name: literal.value for name, literal in read_reference(source, FILE).constants.items()}
    texts = [(each, with_constants(source, each, FILE)) for each in candidates(full)]
    # A reference may need values, which the meta device lacks: then run every size, smallest first.
    at_full = _tried(source, "meta")
    if at_full is None:
        fits = ((each, made) for each, text in reversed(texts) if (made := _computed(text, MOST[0])) is not None)
        return next((each for each, made in fits if not made_one(made.operations, None)), None)
    planned = [(each, text, size) for each, text in texts if (size := _tried(text, "meta")) is not None]
    planned = [row for row in planned if not made_one(row[2].operations, at_full.operations)]
    for most in MOST:
        for constants, text, plan in planned:
            if plan.is_within(most) and _computed(text, most) is not None:
                return constants
    return None


def _computed(text: str, most: Most) -> Traced | None:
    """Run a forward with values; return None if it fails or exceeds `most`."""
    made = _tried(text, "cpu")
    return made if made is not None and made.is_within(most) else None


def _tried(text: str, device: str) -> Traced | None:
    """Run a forward on `device`; return None if the problem's code raises: its constants are inconsistent."""
    with contextlib.suppress(Exception):
        return _traced(text, device)
    return None


def _traced(text: str, device: str) -> Traced:
    with registered() as module, torch.device(device), torch.no_grad():
        torch.manual_seed(_SEED)
        exec(compile(text, FILE, "exec"), module.__dict__)  # noqa: S102 - the problem's own code
        args, kwargs = arguments(module.__dict__["get_inputs"])
        init_args, init_kwargs = arguments(module.__dict__["get_init_inputs"])
        model = module.__dict__["Model"](*init_args, **init_kwargs)
        with Operations() as trace:
            output = model(*args, **kwargs)
    leaves = model_call.tensors_of(output)
    if not leaves or not all(each.numel() for each in leaves):
        raise NoAnswer
    if device == "cpu" and not all(bool(each.isfinite().all()) for each in leaves if each.is_floating_point()):
        raise NoAnswer
    given = [model_call.tensors_of([args, kwargs]), list(model.parameters())]
    return Traced(trace.found, Most(max(sum(each.numel() for each in side) for side in given), trace.elements))


def run(sock: socket.socket, _: Path) -> None:
    """Serve one request over `sock`, in a confined process."""
    serve(sock, lambda source: json.dumps(find(source.decode())).encode())
