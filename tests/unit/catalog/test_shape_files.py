"""Folders of kernelbench.com and Atrex-Bench: shapes as workloads, and what is refused."""

import json

import pytest
import torch

from evaluator.catalog import find_problem, list_problems
from evaluator.errors import ProblemError
from evaluator.judge.reference.problem_module import ProblemModule
from evaluator.records import BenchmarkRule, MatchedRatio, Precision, SizeName

REFERENCE = """\
import torch
from torch import nn

OP_TYPE = "scale"
M, N = 4, 8
BATCH = 2


class Model(nn.Module):
    \"\"\"Scales.\"\"\"

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor


def get_inputs():
    return [torch.rand(BATCH, M, N)]


def get_init_inputs():
    return [3.0]
"""
SHAPES = """\
WIDE = 64

SHAPES = [
    {"M": 16, "N": WIDE, "batch": 2},  # named
    {"M": 1, "N": 32, "batch": 1},
]
"""


def kernelbench_com(folder, shapes=SHAPES, settings="name: scale\nprecision: int4_bf16  # packed\n"):
    folder.mkdir(exist_ok=True)
    (folder / "reference.py").write_text(REFERENCE)
    (folder / "shapes.py").write_text(shapes)
    (folder / "problem.yaml").write_text(settings)
    return folder


def drawn(problem, size=SizeName.SMALL):
    module = ProblemModule(problem, size)
    return module, module.draw(1, torch.device("cpu"))


def test_shapes_of_kernelbench_com_set_constants(tmp_path):
    problem = find_problem(str(kernelbench_com(tmp_path / "scale")))
    assert {name: case.axes for name, case in problem.cases.items()} == {
        "full": {"M": 16, "N": 64, "BATCH": 2},
        "small": {"M": 1, "N": 32, "BATCH": 1},
        "0": {"M": 16, "N": 64, "BATCH": 2},
        "1": {"M": 1, "N": 32, "BATCH": 1},
    }
    assert (problem.precision, problem.description) == (Precision.BF16, "Scales.")
    assert (problem.benchmark, problem.matched_ratio(SizeName.SMALL)) == (BenchmarkRule.KERNELBENCH, None)
    module, inputs = drawn(problem)
    assert module.construct(0)(*inputs.args).equal(inputs.args[0] * 3)
    assert inputs.args[0].shape == (1, 1, 32)
    assert [each.name for each in list_problems(tmp_path).problems] == ["scale"]


def test_a_precision_without_a_line_is_fp32(tmp_path):
    assert find_problem(str(kernelbench_com(tmp_path / "scale", settings="precision: fp8"))).precision is Precision.FP32


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ("SHAPES = []", "SHAPES = [{…}] with 1 to 10000 dicts is required"),
        ("OTHER = [{'M': 1}]", "SHAPES = [{…}] with 1 to 10000 dicts is required"),
        ("SHAPES = [{'Q': 1}]", "SHAPES[0]: Q is no constant of reference.py; allowed: OP_TYPE, M, N, BATCH"),
        ("SHAPES = [3]", "line 1 is no dict with a shape"),
        ("SHAPES = [{'M': open('/etc/passwd')}]", "SHAPES is no list of dicts of literals"),
        ("SHAPES = [{'M': other}]", "is no number, text or list of integers"),
        ("SHAPES = [{'M': float('inf')}]", "SHAPES is no list of dicts of literals"),
        ("SHAPES = [", "SHAPES is no list of dicts of literals"),
    ],
)
def test_broken_shapes(tmp_path, shapes, message):
    with pytest.raises(ProblemError) as refused:
        find_problem(str(kernelbench_com(tmp_path / "scale", shapes)))
    assert message in refused.value.message


ATREX = """\
import torch


class Model(torch.nn.Module):
    def __init__(self, factor: int = 5, name="plain"):
        super().__init__()
        self.factor = factor

    def forward(self, x, lengths):
        return {"out": x * self.factor, "total": lengths.sum()}
"""
INPUTS = """\
import torch

def _make_inputs(seq_lens: list[int], factor: int):
    lengths = torch.tensor(seq_lens, device='cuda')
    return {'x': torch.randn(sum(seq_lens), factor, device='cuda'), 'lengths': lengths}
"""
GIVEN = {
    "0": {"init_kwargs": {"factor": 2}, "input_kwargs": {"seq_lens": [3, 4], "factor": 2}},
    "1": {"init_kwargs": None, "input_kwargs": {"factor": 1, "seq_lens": [2]}},
}
METADATA = {"id": "a", "dtype": "fp16", "shapes": {"0": {"description": "Decode", "call_count": 54}, "1": {}}}


def atrex(folder, shapes=GIVEN, reference=ATREX, metadata=METADATA):
    folder.mkdir(exist_ok=True)
    (folder / "reference.py").write_text(reference)
    (folder / "input.py").write_text(INPUTS)
    (folder / "shapes.json").write_text(json.dumps(shapes))
    (folder / "metadata.json").write_text(json.dumps(metadata))
    return folder


def test_shapes_of_atrex_are_arguments_with_weights(tmp_path):
    problem = find_problem(str(atrex(tmp_path / "scale")))
    assert problem.cases["full"].axes == {"init_factor": 2, "seq_lens": [3, 4], "factor": 2}
    assert problem.cases["small"].axes == {"init_factor": 5, "seq_lens": [2], "factor": 1}
    assert [problem.cases[name].weight for name in problem.workload] == [54.0, 1.0]
    assert (problem.precision, problem.benchmark) == (Precision.FP16, BenchmarkRule.ATREX)
    assert problem.matched_ratio(SizeName.FULL) == MatchedRatio(1e-2, 5e-2, 1.0)
    module, inputs = drawn(problem, SizeName.FULL)
    out = module.construct(0)(**inputs.kwargs)
    assert out["out"].equal(inputs.kwargs["x"] * 2)
    assert (inputs.kwargs["x"].shape, out["total"].item()) == ((7, 2), 7)
    assert drawn(problem)[0].construct(0).factor == 5


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"shapes": {}}, "1 to 10000 shapes are required"),
        ({"shapes": {"0": {"init_kwargs": {}, "inputs": {}}}}, "0.inputs: unknown key; allowed: init_kwargs"),
        ({"shapes": {"0": GIVEN["0"], "1": {"init_kwargs": {}, "input_kwargs": {}}}}, "1.input_kwargs.seq_lens: None"),
        ({"shapes": [1]}, "shapes.json: not an object"),
        ({"shapes": {"0": {"init_kwargs": {"a b": 1}, "input_kwargs": {}}}}, "'a b' cannot be the name"),
        ({"shapes": {"0": GIVEN["0"]}, "reference": "class Net: pass"}, "does not define Model"),
        ({"reference": f"{ATREX}\nfactor = 3\n"}, "factor is a name of the reference's own"),
    ],
)
def test_a_broken_folder_of_atrex(tmp_path, changed, message):
    with pytest.raises(ProblemError) as refused:
        find_problem(str(atrex(tmp_path / "scale", **changed)))
    assert message in refused.value.message


def test_metadata_may_hold_anything(tmp_path):
    for metadata in ([], {"shapes": 3}, {"shapes": {"0": {"call_count": "many"}}, "dtype": 7}):
        problem = find_problem(str(atrex(tmp_path / "scale", metadata=metadata)))
        assert {case.weight for case in problem.cases.values()} == {1.0}
