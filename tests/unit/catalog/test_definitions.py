"""Definitions of SOL-ExecBench and FlashInfer-Trace: what is read, what is refused, and the text of the reference."""

import json

import pytest
import torch

from evaluator.catalog import Origin, find_problem, list_problems, sized_source
from evaluator.errors import ProblemError, ProblemNotFound
from evaluator.judge.reference.problem_module import ProblemModule
from evaluator.judge.reference.reference import Reference
from evaluator.records import ElementFormat, MatchedRatio, Precision, SizeName
from evaluator.sizes.cases import chosen_cases, missing_case
from tests.definitions import CUSTOM, NORM, RANDOM, SOURCES, WORKLOADS, write_definition
from tests.unit.test_tensor_files import written


def drawn(problem, size=SizeName.SMALL):
    """The module of a problem at a size, and one call's inputs."""
    module = ProblemModule(problem, size)
    return module, module.draw(1, torch.device("cpu")).args


def of(tmp_path, inputs, run="def run(*values):\n    return values[0]\n", sources=None, **changed):
    """A problem whose inputs have the given specifications, by name."""
    specs = {name: {"dtype": "float32", **spec} for name, spec in inputs.items()}
    sources = dict.fromkeys(specs, RANDOM) if sources is None else sources
    workloads = [{"uuid": "only", "axes": {"rows": 6}, "inputs": sources}]
    changed = {"reference": run, "inputs": specs, **changed}
    return find_problem(str(write_definition(tmp_path / "mine", NORM, workloads, **changed)))


def test_a_folder_is_a_problem_whose_sizes_are_workloads(tmp_path):
    problem = find_problem(str(write_definition(tmp_path / "mine")))
    assert (problem.name, problem.title, problem.origin) == ("mine", "norm", Origin.DEFINITION)
    assert {name: case.axes for name, case in problem.cases.items()} == {
        "full": {"rows": 32, "eps": 1e-6},
        "small": {"rows": 3, "eps": 1.0},
        "first": {"rows": 8, "eps": 1e-6},
        "large": {"rows": 32, "eps": 1e-6},
        "least": {"rows": 3, "eps": 1.0},
    }
    assert problem.workload == ("first", "large", "least")
    assert problem.matched_ratio("first") == MatchedRatio(max_atol=0.5, max_rtol=0.0)
    assert problem.matched_ratio("large") == problem.matched_ratio("full") == MatchedRatio()
    assert problem.matched_ratio("other") is None
    module, inputs = drawn(problem)
    assert [tuple(each.shape) for each in inputs[:2]] == [(3, 16), (16,)]
    assert inputs[2] == 1.0
    x, weight, eps = inputs
    expected = torch.nn.functional.rms_norm(x, (16,), weight, eps)
    torch.testing.assert_close(module.construct(0)(*inputs), expected)


def test_the_definitions_lines_keep_their_numbers(tmp_path):
    source = find_problem(str(write_definition(tmp_path / "mine"))).source
    before, _, after = source.partition("# From here on")
    assert before.splitlines()[:8] == NORM["reference"].splitlines()[:8]
    assert '# if __name__ == "__main__":' in before
    assert "rows = 8\neps = 1e-06\nheads = 4\ncolumns = int(heads * 2 ** 3 / 2)\n" in after


def test_a_case_by_number_or_uuid(tmp_path):
    problem = find_problem(str(write_definition(tmp_path / "mine")))
    assert chosen_cases(problem, [SizeName.SMALL], ["0", "least"]) == ("first", "least")
    assert missing_case(problem, [SizeName.SMALL], ["3"]) == "3"


def test_a_uuid_that_cannot_be_a_name(tmp_path):
    workloads = [WORKLOADS[0] | {"uuid": uuid} for uuid in ("a b", "small", "x" * 65, "good")]
    problem = find_problem(str(write_definition(tmp_path / "mine", NORM, workloads)))
    assert problem.workload == ("case_0", "case_1", "case_2", "good")
    assert problem.cases["case_0"].uuid == "a b"


def test_a_listing_has_definitions_beside_other_problems(tmp_path):
    write_definition(tmp_path / "good")
    write_definition(tmp_path / "bad", colour="red")
    listing = list_problems(tmp_path)
    assert [problem.name for problem in listing.problems] == ["good"]
    assert "colour: unknown key" in listing.broken[0].message
    assert find_problem("good", tmp_path).title == "norm"
    with pytest.raises(ProblemNotFound):
        find_problem("goods", tmp_path)


def test_flashinfer_trace(tmp_path):
    (tmp_path / "definitions" / "norms").mkdir(parents=True)
    (tmp_path / "workloads" / "norms").mkdir(parents=True)
    definition = {key: value for key, value in NORM.items() if key not in ("hf_id", "custom_inputs_entrypoint")}
    definition |= {"op_type": "rmsnorm", "tags": ["status:verified"], "constraints": ["rows > 0"]}
    traces = [
        {"definition": "norm", "workload": workload, "solution": None, "evaluation": None}
        for workload in ({name: each[name] for name in ("uuid", "axes", "inputs")} for each in WORKLOADS)
    ]
    file = tmp_path / "definitions" / "norms" / "norm.json"
    file.write_text(json.dumps(definition))
    lines = tmp_path / "workloads" / "norms" / "norm.jsonl"
    lines.write_text("\n".join(map(json.dumps, traces)))
    problem = find_problem(str(file))
    assert (problem.name, len(problem.workload)) == ("norm", 3)
    assert sized_source(problem, SizeName.FULL)
    lines.write_text(json.dumps({**traces[0], "definition": "other"}))
    with pytest.raises(ProblemError, match=r"norm.jsonl, line 1: a workload of 'other', not of 'norm'"):
        find_problem(str(file))


CUSTOM_RUN = """\
import torch


def get_inputs(axes_and_scalars, device):
    assert device == torch.device("cpu"), device
    rows = axes_and_scalars["rows"]
    assert axes_and_scalars == {"rows": rows, "heads": 4, "columns": 16, "flag": 1}
    return {"x": torch.arange(rows, device=device), "n": 7}


def run(x, n):
    return {"other": x - n, "y": x + n}
"""


def test_inputs_of_the_definitions_own_function_and_outputs_by_name(tmp_path):
    """An axis beyond the definition's is an argument of the function, and an input beyond it is ignored."""
    inputs = {"x": {"shape": ["rows"], "dtype": "int64"}, "n": {"shape": None, "dtype": "int64"}}
    outputs = {name: {"shape": ["rows"], "dtype": "int64"} for name in ("y", "other")}
    workloads = [{"uuid": "one", "axes": {"rows": 5, "flag": 1}, "inputs": dict.fromkeys(["x", "n", "bias"], CUSTOM)}]
    changed = {"custom_inputs_entrypoint": "get_inputs", "reference": CUSTOM_RUN, "inputs": inputs, "outputs": outputs}
    folder = write_definition(tmp_path / "mine", NORM, workloads, **changed)
    module, (x, n) = drawn(find_problem(str(folder)))
    assert (x.tolist(), n) == ([0, 1, 2, 3, 4], 7)
    y, other = module.construct(0)(x, n)
    assert (y.tolist(), other.tolist()) == ([7, 8, 9, 10, 11], [-7, -6, -5, -4, -3])


def test_a_further_axis_has_a_name_of_python(tmp_path):
    workloads = [{"uuid": "one", "axes": {"rows": 5, "a = 1; b": 1}, "inputs": {"x": CUSTOM, "n": CUSTOM}}]
    inputs = {"x": {"shape": ["rows"], "dtype": "int64"}, "n": {"shape": None, "dtype": "int64"}}
    changed = {"custom_inputs_entrypoint": "get_inputs", "reference": CUSTOM_RUN, "inputs": inputs}
    with pytest.raises(ProblemError, match="'a = 1; b' cannot be the name"):
        find_problem(str(write_definition(tmp_path / "mine", NORM, workloads, **changed)))


def test_inputs_by_dtype(tmp_path):
    dtypes = ["float16", "bfloat16", "float64", "float8_e4m3fn", "float8_e5m2", "int8", "int32", "int64", "bool"]
    inputs = {f"x{number}": {"shape": ["rows", "200"], "dtype": dtype} for number, dtype in enumerate(dtypes)}
    inputs |= {"n": {"shape": None, "dtype": "int32"}, "zero": {"shape": []}, "odd": {"shape": ["rows * 2 - 1"]}}
    _, tensors = drawn(of(tmp_path, inputs))
    assert [str(each.dtype) for each in tensors[:9]] == [f"torch.{dtype}" for dtype in dtypes]
    assert all(each.shape == (6, 200) for each in tensors[:9])
    assert type(tensors[9]) is int
    assert (tensors[10].shape, tensors[11].shape) == ((), (11,))
    assert tensors[3].float().abs().max() == 2
    assert tensors[7].abs().max() <= 1024
    assert tensors[8].any()


def test_packed_elements_are_bytes_outside_of_run(tmp_path):
    run = "def run(x):\n    assert x.dtype is torch.float4_e2m1fn_x2\n    return x.view(torch.uint8) & 15\n"
    packed = {"shape": ["rows", "8"], "dtype": "float4_e2m1fn_x2"}
    problem = of(tmp_path, {"x": packed}, f"import torch\n{run}")
    assert problem.formats.inputs == {"x": ElementFormat.NVFP4}
    module, (x,) = drawn(problem)
    assert x.dtype is torch.uint8
    assert module.construct(0)(x).equal(x & 15)


def test_values_follow_names_as_in_the_benchmark(tmp_path):
    square, row = {"shape": ["rows", "rows"]}, {"shape": ["200"]}
    wide = {"shape": ["rows", "10000"]}
    said = {"shape": ["rows", "200"], "description": "Output of the softmax"}
    inputs = {
        "q_norm_weight": row,
        "layernorm1_bias": row,
        "causal_mask": square,
        "drop_mask": row,
        "cos": row,
        "rope_sin": row,
        "rstd": row,
        "running_var": row,
        "A_log": row,
        "g": row,
        "p": said,
        "up_proj": wide,
        "norms": wide,
    }
    values = dict(zip(inputs, drawn(of(tmp_path, inputs))[1], strict=True))
    assert values["q_norm_weight"].eq(1).all()
    assert values["layernorm1_bias"].eq(0).all()
    assert values["causal_mask"].tril().eq(0).all()
    assert values["causal_mask"][0, 1] == torch.finfo(torch.float32).min
    assert set(values["drop_mask"].tolist()) == {0.0, 1.0}
    assert values["cos"].abs().max() <= 1
    assert values["rope_sin"].abs().max() <= 1
    assert min(values["rstd"].min(), values["running_var"].min()) >= 0.1
    assert -5 <= values["A_log"].min() <= values["A_log"].max() <= -1
    assert values["g"].max() <= 0
    torch.testing.assert_close(values["p"].sum(-1), torch.ones(6))
    assert 0.009 < values["up_proj"].std() < 0.011
    assert 0.9 < values["norms"].std() < 1.1


@pytest.mark.parametrize(
    ("dtypes", "precision"),
    [
        (["float32", "int64"], Precision.FP32),
        (["float32", "float16"], Precision.FP16),
        (["float16", "bfloat16"], Precision.BF16),
        (["float8_e4m3fn", "float32"], Precision.FP32),
    ],
)
def test_the_narrowest_tensors_give_the_precision(tmp_path, dtypes, precision):
    inputs = {f"x{number}": {"shape": ["rows"], "dtype": dtype} for number, dtype in enumerate(dtypes)}
    inputs |= {"eps": {"shape": None, "dtype": "bfloat16"}}
    assert of(tmp_path, inputs).precision is precision


REFUSED = [
    ({"colours": 1}, "mine/definition.json: colours: unknown key; allowed: name, axes"),
    ({"name": None}, "definition.json: name: expected `str`, got `null`"),
    ({"axes": {"rows": {"type": "var", "valu": 3}}}, "axes.rows.valu: unknown key; allowed: type, value"),
    ({"axes": {"rows": {"type": "vary"}}}, "axes.rows.type: invalid enum value 'vary'; allowed: const, var, expr"),
    ({"axes": {"rows": {"type": "const"}}}, "axes.rows.value: this key is required for an axis of type const"),
    ({"axes": {"rows": {"type": "var", "value": 3}}}, "axes.rows.value: this key is unknown for an axis of type var"),
    ({"axes": {"rows": {"type": "const", "value": -1}}}, "axes.rows.value: expected `int` >= 0"),
    ({"axes": {"rows": {"type": "const", "value": 2**70}}}, "axes.rows.value"),
    ({"axes": {"lambda": {"type": "var"}}}, "'lambda' cannot be the name of an axis or input"),
    ({"axes": {"x": {"type": "var"}}}, "x is the name of both an axis and an input"),
    ({"axes": {"Model": {"type": "const", "value": 1}}}, "'Model' is a name that Warpgrade adds"),
    ({"inputs": {"x": {"shape": ["rows"]}}}, "inputs.x.dtype: this key is required"),
    ({"inputs": {"x": {"shape": ["rows"], "dtype": "float7"}}}, "inputs.x.dtype: invalid enum value 'float7'; allowed"),
    ({"inputs": {"x": {"shape": [3], "dtype": "float32"}}}, "inputs.x.shape[0]: expected `str`, got `int`"),
    ({"inputs": {"x": {"shape": ["row"], "dtype": "float32"}}}, "inputs.x: 'row' names row, which is no integer"),
    ({"outputs": {}}, "outputs: at least one output is required"),
    ({"reference": "def go(): pass"}, "reference: defines no function 'run' at its top level"),
    ({"reference": "def run(:"}, "reference: line 1: not Python"),
    ({"reference": "class Model: pass\ndef run(): pass"}, "'Model' is a name that Warpgrade adds"),
    ({"reference": "rows = 2\ndef run(): pass"}, "rows names an axis or input, and the code sets it too"),
    ({"custom_inputs_entrypoint": "make"}, "reference: defines no function 'make'"),
]


@pytest.mark.parametrize(("changed", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_a_broken_definition(tmp_path, changed, message):
    if "axes" in changed:
        changed = {"axes": NORM["axes"] | changed["axes"]}
    if "inputs" in changed:
        changed = {"inputs": NORM["inputs"] | changed["inputs"]}
    with pytest.raises(ProblemError) as refused:
        find_problem(str(write_definition(tmp_path / "mine", **changed)))
    assert message in refused.value.message


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("heads * __import__('os')", "may hold whole numbers"),
        ("heads ** heads ** heads ** 9", "gives a huge number"),
        ("heads / 3", "gives 4 / 3, which is no whole number"),
        ("heads // 0", "divides by zero"),
        ("heads - 9", "gives -5; expected 0 or more"),
        ("+".join(["heads"] * 500), "is too long"),
        ("(" * 300 + "heads" + ")" * 300, "is "),
    ],
)
def test_a_broken_formula(tmp_path, expression, reason):
    axes = NORM["axes"] | {"columns": {"type": "expr", "expression": expression}}
    with pytest.raises(ProblemError) as refused:
        find_problem(str(write_definition(tmp_path / "mine", axes=axes)))
    assert "axes.columns" in refused.value.message
    assert reason in refused.value.message


BROKEN_LINES = [
    ({"axis": {}}, "line 1: axis: unknown key; allowed: uuid, axes, inputs, tolerance"),
    ({"axes": {}}, "line 1: axes.rows: this axis is required"),
    ({"axes": {"rows": 3, "heads": 4}}, "line 1: axes.heads: the definition fixes this axis"),
    ({"axes": {"rows": 3, "deep": 4}}, "line 1: axes.deep: the definition has no such axis"),
    ({"axes": {"rows": -3}}, "axes: expected `int` >= 0"),
    ({"inputs": SOURCES | {"z": RANDOM}}, "line 1: inputs.z: the definition has no such input"),
    ({"inputs": SOURCES | {"x": {"type": "zeros"}}}, "inputs.x.type: invalid enum value 'zeros'; allowed: random"),
    ({"inputs": SOURCES | {"x": {"type": "random", "seed": 1}}}, "inputs.x.seed: unknown key"),
    ({"inputs": SOURCES | {"x": {"type": "random", "value": 1}}}, "inputs.x.value: this key is unknown for an input"),
    ({"inputs": SOURCES | {"eps": {"type": "scalar"}}}, "inputs.eps.value: this key is required"),
    ({"inputs": SOURCES | {"x": {"type": "scalar", "value": 1}}}, "inputs.x: a scalar, but the input is a tensor"),
    ({"inputs": SOURCES | {"x": CUSTOM}}, "inputs.x: custom, but the definition has no custom_inputs_entrypoint"),
    ({"tolerance": {"max_atoll": 1}}, "line 1: tolerance.max_atoll: unknown key"),
    ({"tolerance": {"required_matched_ratio": 1.5}}, "tolerance.required_matched_ratio: expected `float` <= 1"),
    ({"tolerance": {"max_atol": -1}}, "tolerance.max_atol: expected `float` >= 0"),
    ({"uuid": "large"}, "a uuid occurs twice"),
]


@pytest.mark.parametrize(("changed", "message"), BROKEN_LINES, ids=[message for _, message in BROKEN_LINES])
def test_a_broken_workload(tmp_path, changed, message):
    with pytest.raises(ProblemError) as refused:
        find_problem(str(write_definition(tmp_path / "mine", NORM, [WORKLOADS[0] | changed, *WORKLOADS[1:]])))
    assert message in refused.value.message
    assert "workload.jsonl" in refused.value.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no workload"),
        ("{", "line 1: not JSON"),
        ("[1]", "line 1: the file: expected `object`, got `array`"),
        ("[" * 100_000, "line 1: not JSON"),
    ],
)
def test_a_file_of_workloads_that_is_none(tmp_path, text, message):
    folder = write_definition(tmp_path / "mine")
    (folder / "workload.jsonl").write_text(text)
    with pytest.raises(ProblemError) as refused:
        find_problem(str(folder))
    assert message in refused.value.message


def test_workloads_of_one_kind(tmp_path):
    other = WORKLOADS[1] | {"inputs": SOURCES | {"eps": RANDOM}}
    with pytest.raises(ProblemError, match="line 2: other axes, or other types of inputs, than in the first line"):
        find_problem(str(write_definition(tmp_path / "mine", NORM, [WORKLOADS[0], other])))


def test_a_definition_without_workloads(tmp_path):
    (write_definition(tmp_path / "mine") / "workload.jsonl").unlink()
    with pytest.raises(ProblemError, match=r"mine is no problem: it has no workload.jsonl"):
        find_problem(str(tmp_path / "mine"))


def test_inputs_of_safetensors_files(tmp_path):
    sources = {"x": {"type": "safetensors", "path": "blob/a.safetensors", "tensor_key": "x"}}
    problem = of(tmp_path, {"x": {"shape": ["rows", "3"], "dtype": "bfloat16"}}, sources=sources)
    assert problem.cases["only"].axes == {"rows": 6, "x_file": "blob/a.safetensors", "x_key": "x"}
    with pytest.raises(ProblemError, match=r"blob/a.safetensors does not exist"):
        drawn(problem)
    values = torch.arange(18, dtype=torch.bfloat16).reshape(6, 3)
    written(tmp_path / "mine" / "blob" / "a.safetensors", values)
    assert drawn(problem)[1][0].equal(values)


@pytest.mark.parametrize("dtype", ["float8_e4m3fnuz", "float4_e2m1fn_x2"])
def test_outputs_without_arithmetic_are_refused(tmp_path, dtype):
    run = f"import torch\ndef run(x):\n    return torch.zeros(6, dtype=torch.uint8).view(torch.{dtype})\n"
    reference = Reference(of(tmp_path, {"x": {"shape": ["rows"]}}, run), SizeName.SMALL, 1)
    with pytest.raises(ProblemError, match=f"forward returns a tensor in {dtype}, which no grade can compare"):
        reference.forward(reference.draw(1), 0)
