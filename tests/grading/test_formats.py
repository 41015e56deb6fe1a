"""Submissions for problems in formats of few bits: a step of rounding is honest, values cut off are not."""

import pytest

from evaluator.findings import Code
from evaluator.records import ElementFormat, Formats, OutputFormat, SizeName, Status
from tests.grading.harness import module
from tests.grading.judged import context_of, judged, verdict
from tests.unit.references import problem

SCALE = "scale = x.abs().amax(-1, keepdim=True) / 127"
STEP = "codes.view(-1)[::128] -= codes.view(-1)[::128].sign()"
QUANTISER = problem(
    "((x / (s := x.abs().amax(-1, keepdim=True) / 127)).round().clamp(-127, 127).to(torch.int8), s)",
    "torch.randn(16, 128)",
    formats=Formats(outputs={"output[0]": OutputFormat(ElementFormat.INT8)}),
)
FP8 = problem(
    "(a.to(b.dtype) * b).clamp(-448, 448).to(torch.float8_e4m3fn)",
    "torch.randn(16, 128).to(torch.float8_e4m3fn), torch.rand(16, 1) + 0.5",
    forward="a, b",
)
SUBMISSIONS = {
    "a step in a few elements": (
        QUANTISER,
        module(
            forward=[SCALE, "codes = (x / scale).round().clamp(-127, 127)", STEP, "return codes.to(torch.int8), scale"]
        ),
        (Status.CORRECT, None),
    ),
    "values cut off": (
        QUANTISER,
        module(forward=[SCALE, "return (x / scale).to(torch.int8), scale"]),
        (Status.WRONG_RESULT, Code.WRONG_VALUES),
    ),
    "fp8 in and out": (
        FP8,
        module(forward=["return (a.float() * b).clamp(-448, 448).to(torch.float8_e4m3fn)"]).replace(
            "forward(self, x)", "forward(self, a, b)"
        ),
        (Status.CORRECT, None),
    ),
}


@pytest.mark.parametrize(("own", "source", "expected"), SUBMISSIONS.values(), ids=SUBMISSIONS)
def test_formats_of_few_bits_are_compared_in_steps(own, source, expected):
    with context_of(own, SizeName.SMALL) as context:
        outcome = judged(context, source)
    assert verdict(outcome) == expected, outcome.reason
    assert {check.precision for check in outcome.checks} == {"float64"}
