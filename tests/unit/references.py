"""References for tests: a problem of one expression, as a folder of its own would give it."""

import hashlib
from typing import Any

from msgspec.structs import replace

from evaluator.judge.reference.reference import Reference
from evaluator.records import Mode, Precision, Problem, SizeName, ToleranceOverride, cases_of

SOURCE = """
import torch
from torch import nn
from torch.nn import functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, {forward}):
        return {output}

def get_inputs():
    return [{given}]

def get_init_inputs():
    return []
"""


def problem(
    output: str, given: str = "torch.rand(32, 64)", init: str = "pass", forward: str = "x", **changes: Any
) -> Problem:
    """Make a problem of forward's expression of its parameters `forward`, and what the constructor does."""
    source = SOURCE.format(output=output, given=given, init=init, forward=forward)
    made = Problem(
        name="p",
        title="p",
        level=1,
        description="",
        origin="folder",
        path="/nowhere",
        source=source,
        sha256=hashlib.sha256(source.encode()).hexdigest(),  # A key of cached decisions: each problem has its own.
        cases=cases_of({SizeName.SMALL: {}}),
        precision=Precision.FP32,
        mode=Mode.TRAIN,
        backward=False,
        tolerance=ToleranceOverride(),
        split={},
    )
    return replace(made, **changes)


def reference(output: str, given: str = "torch.rand(32, 64)", init: str = "pass", **changes: Any) -> Reference:
    """Make the reference of such a problem."""
    return Reference(problem(output, given, init, **changes), SizeName.SMALL, 1)
