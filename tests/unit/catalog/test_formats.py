"""Tables of formats and of hidden ranges in a problem.toml, and the hints of refusals."""

import pytest

from evaluator.catalog import find_problem
from evaluator.errors import ProblemError
from evaluator.records import ElementFormat, Formats, OutputFormat
from tests.unit.catalog.texts import REFERENCE, TOML

CODES = REFERENCE.replace("self, x, *, bias=None", "self, codes, scale")


@pytest.fixture
def read(own):
    return lambda formats: find_problem(str(own(TOML + formats, CODES))).formats


def test_formats_are_read(read):
    text = '[formats.inputs]\ncodes = "int4"\n[formats.outputs]\noutput = "int8"\n"output[0].codes" = "fp8_e5m2"\n'
    outputs = {"output": OutputFormat(ElementFormat.INT8), "output[0].codes": OutputFormat(ElementFormat.FP8_E5M2)}
    assert read(text) == Formats(inputs={"codes": ElementFormat.INT4}, outputs=outputs)
    text = '[formats.outputs]\n"output[0]" = { format = "nvfp4", scales = "output[1]" }\n'
    assert read(text).outputs == {"output[0]": OutputFormat(ElementFormat.NVFP4, "output[1]")}
    assert read("[formats.outputs]\noutput = { flips = 1e-5 }\n").outputs == {"output": OutputFormat(flips=1e-5)}
    assert read("") == Formats()


BROKEN = {
    "unknown table": ('[formats]\nweights = "int8"', "formats.weights: unknown key"),
    "no parameter": ('[formats.inputs]\ncode = "int8"', "did you mean codes"),
    "no format": ('[formats.inputs]\ncodes = "int9"', "formats.inputs.codes: got 'int9'"),
    "no text": ("[formats.inputs]\ncodes = 8", "formats.inputs.codes: got 8"),
    "scales as an input": ('[formats.inputs]\nscale = "e8m0"', "formats.inputs.scale: got 'e8m0'"),
    "a list as an input": ('[formats.inputs]\nscale = ["int8"]', "formats.inputs.scale: got ['int8']"),
    "no path": ('[formats.outputs]\ncodes = "int8"', "not the path of an output"),
    "no scales": ('[formats.outputs]\noutput = "mxfp4"', "path of the scales"),
    "scales of themselves": (
        '[formats.outputs]\noutput = { format = "mxfp4", scales = "output" }',
        "path of the scales",
    ),
    "scales of no path": ('[formats.outputs]\noutput = { format = "mxfp4", scales = 1 }', "path of the scales"),
    "scales of int8": ('[formats.outputs]\noutput = { format = "int8", scales = "output[1]" }', "path of the scales"),
    "one key more": (
        '[formats.outputs]\noutput = { format = "mxfp4", scales = "output[1]", block = 16 }',
        "path of the scales",
    ),
    "more flips than a sixteenth": ("[formats.outputs]\noutput = { flips = 0.1 }", "at most 1/16"),
    "no flips": ("[formats.outputs]\noutput = { flips = 0.0 }", "at most 1/16"),
    "flips of codes": ('[formats.outputs]\noutput = { format = "int8", flips = 1e-5 }', "at most 1/16"),
    "a list in the table": ('[formats.outputs]\noutput = { format = ["mxfp4"], scales = "x" }', "path of the scales"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_wrong_declaration_is_refused(read, name):
    text, said = BROKEN[name]
    with pytest.raises(ProblemError) as refusal:
        read(text)
    assert said in f"{refusal.value.message} {refusal.value.hint}"


@pytest.mark.parametrize(
    ("ranges", "said"),
    [
        ("rows = { min = 1, max = 64, multiple = 8 }", "hidden.rows.multiple: unknown key; allowed: min"),
        ("rows = { min = 0, max = 64 }", "hidden.rows.min: expected `int` >= 1"),
        ("rows = { min = 65, max = 66, multiple_of = 8 }", "hidden.rows: no multiple of 8 from 65 to 66"),
        ("row = { min = 1, max = 64 }", "hidden.row: reference.py has no module-level constant row"),
        ("factor = { min = 1, max = 64 }", "hidden.factor: got 1, expected float"),
        ("columns = { min = 1, max = 64 }", "hidden.columns: no size sets columns"),
        ("height = { min = 1, max = 64 }", "hidden.height: height shares its literal with another constant"),
    ],
)
def test_a_wrong_hidden_range_is_named(own, ranges, said):
    reference = REFERENCE.replace("rows = 64", "rows = 64\ncolumns = 8\nheight = width = 8")
    with pytest.raises(ProblemError, match=said):
        find_problem(str(own(f"{TOML}[hidden]\n{ranges}", reference)))
