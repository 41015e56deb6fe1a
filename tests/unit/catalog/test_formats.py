"""The tables of formats in a problem.toml: what they declare, and what is refused with a hint."""

import pytest

from evaluator.catalog.folder import read_folder
from evaluator.catalog.text import Origin
from evaluator.errors import ProblemError
from evaluator.records import ElementFormat, Formats, OutputFormat

REFERENCE = """\
import torch
from torch import nn
n = 4
class Model(nn.Module):
    def forward(self, codes, scale): return codes * scale
def get_inputs(): return [torch.randn(n)]
def get_init_inputs(): return []
"""
HEAD = 'title = "t"\nlevel = 1\ndescription = "d"\n[sizes.full]\nn = 4\n[sizes.small]\nn = 4\n'


@pytest.fixture
def read(tmp_path):
    def make(formats):
        (tmp_path / "reference.py").write_text(REFERENCE)
        (tmp_path / "problem.toml").write_text(HEAD + formats)
        return read_folder(tmp_path, Origin.FOLDER).formats

    return make


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
