"""A process of its own that finds a small size of a problem: the reference's source on stdin, the constants on stdout.

A problem's code is its author's, and trusted as the judge trusts it; a size that is too large must not take the judge
with it, though. What is small is counted and not timed, so a busy machine finds the same.
"""

import contextlib
import json
import os
import resource
import sys
import warnings
from typing import Any, NamedTuple

import torch

from evaluator.catalog.reference import read_reference, with_constants
from evaluator.catalog.scaling import candidates
from evaluator.collapse import Shapes, ShapeTrace, collapsed, tensors_in
from evaluator.records import Constant


class Most(NamedTuple):
    """How many elements inputs or weights may have, and all that the operations of one forward give."""

    given: int
    made: int


MOST = (Most(1 << 18, 1 << 22), Most(1 << 21, 1 << 24), Most(1 << 25, 1 << 27))
"""Two square matrices of 256 are within the first. A whole network has weights that no constant makes smaller."""
_DATA_BYTES = 6 << 30
_SEED = 0


class Traced(NamedTuple):
    """One forward: the shapes of its operations, and how many elements it takes and makes."""

    shapes: Shapes
    size: Most

    def is_within(self, most: Most) -> bool:
        """Say whether it is small enough."""
        return self.size.given <= most.given and self.size.made <= most.made


class NoAnswer(Exception):
    """A forward gives nothing, or nothing finite."""


def find(source: str) -> dict[str, Constant] | None:
    """Find constants at which the reference runs, is small, and keeps every dimension above 1; the largest of these."""
    full = {name: literal.value for name, literal in read_reference(source, "reference.py").constants.items()}
    texts = [(each, with_constants(source, each, "reference.py")) for each in candidates(full)]
    # A reference may need values, which the meta device lacks: then every size is tried as it is, the smallest first.
    at_full = _tried(source, "meta")
    if at_full is None:
        fits = ((each, text) for each, text in reversed(texts) if _runs(text, [], MOST[0]))
        return next((each for each, _ in fits), None)
    planned = [(each, text, size) for each, text in texts if (size := _tried(text, "meta")) is not None]
    planned = [row for row in planned if collapsed(at_full.shapes, row[2].shapes) is None]
    for most in MOST:
        for constants, text, plan in planned:
            if plan.is_within(most) and _runs(text, at_full.shapes, most):
                return constants
    return None


def _runs(text: str, full: Shapes, most: Most) -> bool:
    made = _tried(text, "cpu")
    return made is not None and made.is_within(most) and collapsed(full, made.shapes) is None


def _tried(text: str, device: str) -> Traced | None:
    """Run a forward on `device`; None where the problem's code raises anything: its constants do not go together."""
    with contextlib.suppress(Exception):
        return _traced(text, device)
    return None


def _traced(text: str, device: str) -> Traced:
    module: dict[str, Any] = {"__name__": "reference"}
    with torch.device(device), torch.no_grad():
        torch.manual_seed(_SEED)
        exec(compile(text, "reference.py", "exec"), module)  # noqa: S102 - the problem's own code
        inputs = module["get_inputs"]()
        model = module["Model"](*module["get_init_inputs"]())
        with ShapeTrace() as trace:
            output = model(*inputs)
    leaves = tensors_in(output)
    if not leaves or not all(each.numel() for each in leaves):
        raise NoAnswer
    if device == "cpu" and not all(bool(each.isfinite().all()) for each in leaves if each.is_floating_point()):
        raise NoAnswer
    given = [tensors_in(inputs), list(model.parameters())]
    return Traced(trace.shapes, Most(max(sum(each.numel() for each in side) for side in given), trace.elements))


def main() -> None:
    """Answer one question, and end."""
    resource.setrlimit(resource.RLIMIT_DATA, (_DATA_BYTES, _DATA_BYTES))
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # What the reference prints is no answer.
    json.dump(find(sys.stdin.read()), answers)
    answers.flush()
    os._exit(0)
