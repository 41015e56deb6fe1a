"""KernelBot's tasks: cases, generated text, buffers for outputs, the task's own rule, and refused tasks."""

import pytest
import torch

from evaluator.catalog import find_problem, list_problems
from evaluator.errors import ProblemError
from evaluator.judge.reference.problem_module import ProblemModule
from evaluator.records import BenchmarkRule, CheckRule, Precision, SizeName

TASK = """\
# name: shift
files:
  - {"name": "submission.py", "source": "@SUBMISSION@"}
  - {"name": "helpers.py", "source": "../helpers.py"}
  - {"name": "reference.py", "source": "reference.py"}
lang: "py"
description: |
  Adds one.

  Input: a vector.
config:
  main: "eval.py"
tests:
  - {"rows": 5, "seed": 11, "kind": "even"}
  - {"rows": 3, "seed": 12}   # the smallest
benchmarks:
  - {"rows": 70, "seed": 13}
ranking_by: "geom"
"""
HELPERS = """\
def is_near(one, other):
    return bool((one - other).abs().max() < 0.5)
"""
REFERENCE = """\
import torch
from helpers import is_near


def generate_input(rows, seed, kind="odd"):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    x = torch.rand(rows, device="cuda", generator=generator) + (kind == "even")
    return x, torch.empty(rows, device="cuda")


def ref_kernel(data):
    x, out = data
    out[...] = x + 1
    return out


def check_implementation(data, output):
    near = is_near(output, ref_kernel(data))
    return near, "" if near else "too far"
"""
PROPERTY = """\
def check_implementation(data, output):
    return "" if bool((output > data[0]).all()) else "not larger"
"""
CPU = torch.device("cpu")


@pytest.fixture
def task(tmp_path):
    """Write a task; returns its folder."""

    def write(reference=REFERENCE, task=TASK, name="shift"):
        (tmp_path / "helpers.py").write_text(HELPERS)
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / "task.yml").write_text(task)
        (folder / "reference.py").write_text(reference)
        return folder

    return write


def test_tests_and_benchmarks_are_cases(task):
    problem = find_problem(str(task()))
    assert problem.workload == ("test_0", "test_1", "benchmark_0")
    assert problem.cases["test_0"].axes == {"rows": 5, "kind": "even"}
    assert problem.cases["test_1"].axes == {"rows": 3, "kind": "odd"}
    assert problem.cases[SizeName.SMALL].axes["rows"] == 3
    assert problem.cases[SizeName.FULL].axes["rows"] == 70
    assert problem.description == "Adds one."
    assert (problem.precision, problem.benchmark, problem.check) == (Precision.FP32, BenchmarkRule.KERNELBOT, None)
    assert problem.matched_ratio("test_0") is None


def test_a_task_is_found_among_others(task):
    folder = task()
    listing = list_problems(folder.parent)
    assert ([problem.name for problem in listing.problems], listing.broken) == (["shift"], [])


def test_the_reference_runs_on_fresh_seeds_and_new_outputs(task):
    module = ProblemModule(find_problem(str(task())), "test_0")
    one, other = module.draw(1, CPU), module.draw(2, CPU)
    (x, out), (y, _) = one.args[0], other.args[0]
    assert out == {"empty": [5], "dtype": "float32"}
    assert not torch.equal(x, y)
    assert (x >= 1).all()
    assert torch.equal(module.construct(0)(*one.args), x + 1)
    assert module.construct(0)((x.double(), out)).dtype == torch.float64


def test_the_tasks_own_check_is_called(task):
    module = ProblemModule(find_problem(str(task())), "test_1")
    data = module.draw(1, CPU).args
    check = module.namespace["check"]
    assert check(data, data[0][0] + 1.2) is None
    assert check(data, data[0][0]) == "too far"


def test_a_check_of_properties_decides_instead(task):
    reference = REFERENCE[: REFERENCE.index("def check_impl")]
    problem = find_problem(str(task(reference + PROPERTY)))
    assert (problem.check, problem.benchmark) == (CheckRule.INSTEAD, BenchmarkRule.KERNELBOT)
    module = ProblemModule(problem, "test_1")
    data = module.draw(1, CPU).args
    assert module.namespace["check"](data, data[0][0] + 9) is None
    assert module.namespace["check"](data, data[0][0]) == "not larger"
    assert find_problem(str(task(reference))).benchmark is BenchmarkRule.KERNELBENCH


@pytest.mark.parametrize("found", ["True", "(True,)", "1.0"])
def test_a_check_returns_a_message_or_a_pair(task, found):
    reference = REFERENCE.replace('return near, "" if near else "too far"', f"return {found}")
    module = ProblemModule(find_problem(str(task(reference))), "test_1")
    data = module.draw(1, CPU).args
    with pytest.raises(TypeError, match="neither a message nor a pair"):
        module.namespace["check"](data, data[0][0])


def test_only_an_output_of_the_caller_gives_the_dtype(task):
    """Converted to the dtype of an input, a result would accept answers of fewer bits."""
    masked = REFERENCE.replace("return x, torch.empty(rows", "return x, torch.ones(rows, dtype=torch.bfloat16")
    masked = masked.replace("    out[...] = x + 1\n    return out", "    return x * out")
    module = ProblemModule(find_problem(str(task(masked))), "test_1")
    assert module.construct(0)(*module.draw(1, CPU).args).dtype == torch.float32


def test_modules_run_in_the_order_of_their_imports(task):
    listed = TASK.replace('"helpers.py", "source": "../helpers.py"', '"above.py", "source": "above.py"')
    listed = listed.replace('"reference.py", "source": "reference.py"}', '"reference.py", "source": "reference.py"}\n')
    listed = listed.replace("lang:", '  - {"name": "helpers.py", "source": "../helpers.py"}\nlang:')
    folder = task(REFERENCE.replace("from helpers", "from above"), listed)
    (folder / "above.py").write_text("from helpers import is_near\n")
    module = ProblemModule(find_problem(str(folder)), "test_1")
    assert module.namespace["check"](module.draw(1, CPU).args, torch.zeros(3)) == "too far"
    (folder.parent / "helpers.py").write_text(HELPERS + "\nimport above\n")
    with pytest.raises(ProblemError, match="modules import each other"):
        find_problem(str(folder))


def test_keyword_arguments_and_negative_numbers_are_defaults(task):
    reference = REFERENCE.replace('rows, seed, kind="odd"', "rows, seed, *, kind=-1.5")
    assert find_problem(str(task(reference))).cases["test_1"].axes["kind"] == -1.5


def test_the_precision_is_that_of_the_narrowest_dtype(task):
    half = REFERENCE.replace('device="cuda")\n\n\ndef ref', 'device="cuda", dtype=torch.bfloat16)\n\n\ndef ref')
    assert find_problem(str(task(half))).precision is Precision.BF16


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('lang: "py"', 'lang: "cu"', ["C++ or CUDA files", "load_inline"]),
        ('  main: "eval.py"', '  sources: ["a.cu"]', ["C++ or CUDA files"]),
        ('lang: "py"', "multi_gpu: true", ["multi_gpu", "one GPU"]),
        ('ranking_by: "geom"', 'ranking: "geom"', ["task.yml: ranking: unknown key", "did you mean ranking_by"]),
        ('ranking_by: "geom"', 'ranking_by: "worst"', ["ranking_by", "last, mean, geom"]),
        ('"kind": "even"', '"kind": {"a": 1}', ["test_0.kind", "is no number"]),
        ('"rows"', '"torch"', ["'torch'", "rename it"]),
        ('"rows": 3,', '"row s": 3,', ["no identifier"]),
        ("../helpers.py", "../../../helpers.py", ["two folders above", "copy the file"]),
        ("../helpers.py", "helpers.txt", ["is no Python file"]),
        ('"name": "helpers.py"', '"name": "random.py"', ["random.py", "rename it"]),
        ('"rows"', '"isinstance"', ["'isinstance'", "rename it"]),
        ("../helpers.py", "../help\\0ers.py", ["files[1].source"]),
        ('"rows"', '"_reference"', ["'_reference'", "rename it"]),
        ('"rows": 3,', '"rows": 3, "more": 1,', ["test_0.more", "is no default"]),
        ('"name": "reference.py"', '"name": "other.py"', ["files: reference.py"]),
        ("tests:\n", "tests: [\n", ["not YAML", "line 14"]),
        ("tests:", "tests: 3\nmore:", ["tests"]),
    ],
)
def test_other_tasks_are_refused_with_the_file_and_the_key(task, old, new, words):
    assert old in TASK
    with pytest.raises(ProblemError) as error:
        find_problem(str(task(task=TASK.replace(old, new))))
    assert all(word in f"{error.value} {error.value.hint}" for word in ["task.yml", *words]), error.value


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("def ref_kernel", "def kernel", ["does not define ref_kernel", "a task's reference defines"]),
        ("def generate_input", "def generate_inputs", ["does not define generate_input"]),
        ("import torch", "import torch as", ["not Python"]),
    ],
)
def test_a_reference_needs_two_functions(task, old, new, words):
    with pytest.raises(ProblemError) as error:
        find_problem(str(task(REFERENCE.replace(old, new))))
    assert all(word in f"{error.value} {error.value.hint}" for word in ["reference.py", *words]), error.value


def test_formats_without_arithmetic_travel_as_bytes(task):
    reference = """\
import torch


def generate_input(rows, seed, kind="odd"):
    codes = torch.randint(0, 256, (rows, 4), dtype=torch.uint8, device="cuda").view(torch.float4_e2m1fn_x2)
    return [(codes, rows)], torch.ones(rows, device="cuda"), {"rows": rows}


def ref_kernel(data):
    [(codes, rows)], scales, facts = data
    assert codes.dtype == torch.float4_e2m1fn_x2 and rows == facts["rows"]
    return codes.view(torch.uint8).float() * scales[:, None]
"""
    module = ProblemModule(find_problem(str(task(reference))), "test_0")
    (data,) = module.draw(1, CPU).args
    assert data[0][0][0]["bytes"].dtype == torch.uint8
    assert torch.equal(module.construct(0)(data), data[0][0][0]["bytes"].float())


def test_an_error_in_a_module_has_its_own_line(task):
    with pytest.raises(ProblemError, match=r"reference\.py, line 3: "):
        ProblemModule(find_problem(str(task(REFERENCE.replace("import is_near", "import is_near\n1 / 0")))), "test_0")


def test_texts_with_quotes_and_without_a_last_line_end_are_read(task):
    text = REFERENCE + "TEXT = '''a\\nb'''  # \"\"\"\nEND = r'\\d'"
    module = ProblemModule(find_problem(str(task(text))), "test_0")
    reference = module.namespace["_reference"]
    assert (reference.TEXT, reference.END) == ("a\nb", "\\d")
