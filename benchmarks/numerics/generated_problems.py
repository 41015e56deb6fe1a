"""Problems of tables: an expression and the shapes of its inputs, or a problem of a folder in half precision."""

import hashlib

from msgspec.structs import replace

from evaluator.records import Mode, Precision, Problem, SizeName, ToleranceOverride, cases_of

_SOURCE = """\
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, {arguments}):
        return {forward}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""
_IN_HALF = """


def _in_half_precision():
    import functools

    dtype = torch.{dtype}
    construct, draw = Model.__init__, get_inputs

    def cast(value):
        if isinstance(value, torch.Tensor):
            return value.to(dtype) if value.dtype in (torch.float16, torch.bfloat16, torch.float32) else value
        if isinstance(value, (list, tuple)):
            return type(value)(cast(item) for item in value)
        return {{key: cast(item) for key, item in value.items()}} if isinstance(value, dict) else value

    @functools.wraps(construct)
    def constructed(self, *args, **kwargs):
        construct(self, *args, **kwargs)
        self.to(dtype)

    Model.__init__ = constructed
    globals()["get_inputs"] = lambda: cast(draw())


_in_half_precision()
"""
DTYPES = {Precision.BF16: "bfloat16", Precision.FP16: "float16"}
"""PyTorch's names of the dtypes of half precision."""


def problem_of(
    arguments: str,
    forward: str,
    inputs: str,
    *,
    rows: int,
    terms: int,
    init: str = "pass",
    precision: Precision = Precision.FP32,
) -> Problem:
    """Return the problem whose forward, with these arguments, returns an expression.

    `inputs` are expressions with places for `rows` and for `terms`, the number of terms in each sum. `init` is a
    statement of the constructor, with the same places. In half precision, inputs and weights are cast to the dtype.
    """
    made = inputs.format(rows=rows, terms=terms)
    source = _SOURCE.format(arguments=arguments, forward=forward, inputs=made, init=init.format(rows=rows, terms=terms))
    problem = Problem(
        name="generated",
        title=forward,
        level=1,
        description="",
        origin="folder",
        path="/nowhere",
        source=source,
        sha256=hashlib.sha256(source.encode()).hexdigest(),
        cases=cases_of({SizeName.FULL: {}}),
        precision=Precision.FP32,
        mode=Mode.TRAIN,
        backward=False,
        tolerance=ToleranceOverride(),
        split={},
    )
    return in_precision(problem, precision)


def in_precision(problem: Problem, precision: Precision) -> Problem:
    """Return a problem in half precision: floating-point inputs, weights and buffers are cast; fp32 returns unchanged.

    Numbers in fp64 and codes in fp8 stay, and so do casts in the reference's own text. The problem's own tolerance and
    profiles are those of its precision, and are left out.
    """
    if precision not in DTYPES:
        return problem
    source = problem.source + _IN_HALF.format(dtype=DTYPES[precision])
    return replace(
        problem,
        source=source,
        sha256=hashlib.sha256(f"{problem.sha256}{source}".encode()).hexdigest(),
        precision=precision,
        tolerance=ToleranceOverride(),
        profiles={},
    )
