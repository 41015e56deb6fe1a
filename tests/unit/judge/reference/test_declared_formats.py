"""Declared formats against the tensors of a call."""

import pytest

from evaluator.errors import ProblemError
from evaluator.judge.reference.declared_formats import input_forms
from evaluator.records import ElementFormat, Formats, OutputFormat
from tests.unit.references import reference

F = ElementFormat
INT8 = "(torch.rand(4, 8) * 100).to(torch.int8)"
BYTES = "torch.randint(0, 256, (4, 8)).to(torch.uint8)"


def settled(output, given, formats, **changes):
    made = reference(output, given, formats=formats, **changes)
    inputs = made.draw(1)
    made.settle(inputs, made.forward(inputs, 0))
    return made


def test_a_declared_input_is_found_behind_a_list_and_by_keyword():
    given = f"[torch.rand(2), torch.rand(3)], {INT8}"
    made = settled("y", given, Formats(inputs={"y": F.INT8}), forward="x, y")
    assert input_forms(made.problem, made.model, made.draw(1)) == {2: F.INT8}


WRONG = {
    "another dtype": (Formats(inputs={"x": F.FP8_E4M3}), "x", INT8, "is a tensor of float8_e4m3fn, but this one is"),
    "no tensor": (Formats(inputs={"x": F.INT8}), "torch.ones(x)", "3", "get_inputs gives no tensor for x"),
    "no output": (Formats(outputs={"output[1]": OutputFormat(F.INT8)}), "x", INT8, "returns no tensor output[1]"),
    "a wide output": (Formats(outputs={"output": OutputFormat(F.INT8)}), "x + 0.5", INT8, "int8 is a tensor of int8"),
    "a scalar": (Formats(outputs={"output": OutputFormat(F.INT4)}), "x[0, 0]", BYTES, "found a scalar"),
    "wide scales": (
        Formats(outputs={"output[0]": OutputFormat(F.MXFP4, "output[1]")}),
        "(x, x.float())",
        BYTES,
        "e8m0 is a tensor of uint8 or float8_e8m0fnu",
    ),
    "scales of another shape": (
        Formats(outputs={"output[0]": OutputFormat(F.MXFP4, "output[1]")}),
        "(x, x)",
        BYTES,
        "have the shape [4, 8]",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_declaration_that_does_not_fit_is_an_error_of_the_problem(name):
    formats, output, given, said = WRONG[name]
    with pytest.raises(ProblemError, match=r".") as refusal:
        settled(output, given, formats)
    assert said in refusal.value.message


def test_a_fitting_block_format_is_accepted():
    formats = Formats(outputs={"output[0]": OutputFormat(F.MXFP4, "output[1]")})
    nv = Formats(outputs={"output[0]": OutputFormat(F.NVFP4, "output[1]")})
    cases = [
        ("(x, x[:, :1])", formats),
        ("(x, x[:, :1].view(torch.float8_e8m0fnu))", formats),
        ("(x, x[:, :1].view(torch.float8_e4m3fn))", nv),
    ]
    for output, declared in cases:
        assert [leaf.device.type for leaf in settled(output, BYTES, declared).outline] == ["meta", "meta"]
