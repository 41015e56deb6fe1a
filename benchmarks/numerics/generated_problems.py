"""Problems made of an expression and the shapes of its inputs, for tables of forms and sizes."""

import hashlib

from evaluator.records import Mode, Precision, Problem, SizeName, ToleranceOverride

_SOURCE = """\
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, {arguments}):
        return {forward}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


def problem_of(arguments: str, forward: str, inputs: str, *, rows: int, terms: int) -> Problem:
    """Return the fp32 problem whose forward, with these arguments, returns an expression.

    `inputs` are expressions with places for `rows` and for `terms`, the number of terms in each sum.
    """
    made = inputs.format(rows=rows, terms=terms)
    source = _SOURCE.format(arguments=arguments, forward=forward, inputs=made)
    return Problem(
        name="generated",
        title=forward,
        level=1,
        description="",
        origin="folder",
        path="/nowhere",
        source=source,
        sha256=hashlib.sha256(source.encode()).hexdigest(),
        sizes={SizeName.FULL: {}},
        precision=Precision.FP32,
        mode=Mode.TRAIN,
        backward=False,
        tolerance=ToleranceOverride(),
        split={},
    )
