import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import msgspec
import pytest
import torch

from evaluator.catalog import find_problem, list_problems
from evaluator.commands import main
from evaluator.errors import UsageError
from evaluator.judge.reference.problem_module import ProblemModule
from evaluator.records import SizeName
from evaluator.scaffold.first_solution import SolutionLanguage, solution_text
from evaluator.scaffold.new_files import new_problem, new_solution


def _left(folder):
    return sorted(path.name for path in folder.iterdir())


def _with_source(source, *, backward=False):
    return msgspec.structs.replace(find_problem("relu"), source=source, backward=backward)


def _classes(text):
    return {node.name: node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)}


def test_a_new_problem_is_one(tmp_path):
    assert new_problem("scaled_relu", tmp_path / "mine") == tmp_path / "mine" / "scaled_relu"
    problem = find_problem("scaled_relu", tmp_path / "mine")
    assert problem.title == "Scaled relu"
    assert "The example that a new problem starts from" in problem.description
    assert "under any name" in problem.source
    assert set(problem.cases) == set(SizeName)
    assert _left(tmp_path / "mine") == ["scaled_relu"]
    assert _left(tmp_path / "mine" / "scaled_relu") == ["problem.toml", "reference.py"]


def test_a_new_problem_runs_in_float32_and_float64(tmp_path):
    module = ProblemModule(find_problem(str(new_problem("mine", tmp_path))), SizeName.SMALL)
    model, (x,) = module.construct(0), module.draw(1, torch.device("cpu")).args
    assert (model(x).shape, model(x).dtype) == ((32, 256), torch.float32)
    assert model.double()(x.double()).dtype == torch.float64


@pytest.mark.parametrize("name", ["", "2fast", "has space", "../up", "a/b", "class", "softmax-2", "größe", ".hidden"])
def test_a_name_that_is_no_identifier_is_refused(name, tmp_path):
    with pytest.raises(UsageError, match="is not a valid problem name") as caught:
        new_problem(name, tmp_path)
    assert "letters" in caught.value.hint
    assert _left(tmp_path) == []


def test_a_problem_is_never_overwritten(tmp_path):
    (tmp_path / "mine").mkdir()
    with pytest.raises(UsageError, match=r"mine already exists") as caught:
        new_problem("mine", tmp_path)
    assert str(tmp_path / "mine") in caught.value.hint
    assert _left(tmp_path) == ["mine"]
    assert _left(tmp_path / "mine") == []


def test_a_folder_that_cannot_be_made_is_the_users_to_mend(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot write"):
        new_problem("mine", tmp_path / "file")


def test_a_failure_half_way_leaves_nothing(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(UsageError, match="No space left"):
        new_problem("mine", tmp_path)
    with pytest.raises(UsageError, match="No space left"):
        new_solution(find_problem("relu"), tmp_path / "relu.py")
    assert _left(tmp_path) == []


@pytest.mark.parametrize("language", SolutionLanguage)
@pytest.mark.parametrize("problem", list_problems().problems, ids=lambda problem: problem.name)
def test_every_shipped_problem_gets_a_skeleton(problem, language):
    text = solution_text(problem, language)
    model_new, model = _classes(text)["ModelNew"], _classes(problem.source)["Model"]
    assert [ast.unparse(base) for base in model_new.bases] == [ast.unparse(base) for base in model.bases]
    assert "kernels.finish(" in text
    assert ("cuda_sources" in text) == (language is SolutionLanguage.CUDA)
    assert ("Finish.apply" in text) == problem.backward
    signatures = [
        {node.name: ast.unparse(node.args) for node in each.body if isinstance(node, ast.FunctionDef)}
        for each in (model, model_new)
    ]
    assert signatures[0] == signatures[1]


def test_what_forward_returns_goes_through_the_kernel():
    text = solution_text(find_problem("linear_relu_divide"), SolutionLanguage.CUDA)
    assert "        return kernels.finish(torch.relu(self.linear(x)) / self.divisor)\n" in text


REFERENCE = '''\
"""A reference with everything in it."""
import math
import torch
import torch.nn as nn

batch = 4
width = 8
SCALE = 2.0
unused = 3


def scaled(x, width=width):
    return x * SCALE  # größer


class Block(nn.Module):
    def forward(self, x):
        return scaled(x)


@torch.no_grad
def helper_nobody_calls():
    return unused


class Model(nn.Module):
    """Model of Models."""

    limit: float = math.inf

    def __init__(self, batch):
        super(Model, self).__init__()
        self.block = Block()

    def forward(self, x):
        key = lambda item: item
        def inner():
            return None
        if x is None:
            return None
        if len(x) > 2: return [self.block(x), (x + 1)]
        return {"é": self.block(x), "again": key(x)}


def get_inputs():
    return [torch.randn(batch, width)]


def get_init_inputs():
    return [batch]
'''


def test_a_skeleton_takes_what_model_needs_and_no_more():
    text = solution_text(_with_source(REFERENCE), SolutionLanguage.CPP)
    assert "\nSCALE = 2.0\n" in text
    assert "\nwidth = 8\n" in text  # a default of scaled
    assert "    return x * SCALE  # größer\n" in text
    assert set(_classes(text)) == {"Block", "ModelNew"}
    for name in ("unused", "helper_nobody_calls", "get_inputs", "get_init_inputs", "\nbatch ="):
        assert name not in text
    assert "super(ModelNew, self).__init__()" in text
    assert '"""Model of Models."""' in text
    assert "return [kernels.finish(self.block(x)), (kernels.finish(x + 1))]" in text
    assert 'return {"é": kernels.finish(self.block(x)), "again": kernels.finish(key(x))}' in text
    assert text.count("return None") == 2


def test_a_kernel_that_cannot_be_hooked_in_is_said_to_be_uncalled():
    source = "import torch\nclass Model(torch.nn.ReLU):\n    pass\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"
    text = solution_text(_with_source(source), SolutionLanguage.CPP)
    assert "its kernel, a copy, is not called yet" in " ".join(text.split())
    assert "class ModelNew(torch.nn.ReLU):" in text


def test_a_model_that_is_no_class_cannot_be_started_from():
    source = "from torch.nn import ReLU as Model\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"
    with pytest.raises(UsageError, match="by a class statement"):
        solution_text(_with_source(source), SolutionLanguage.CUDA)


def test_a_skeleton_says_how_its_problem_is_found(tmp_path):
    assert "warpgrade grade relu THIS_FILE" in solution_text(find_problem("relu"), SolutionLanguage.CUDA)
    own = find_problem(str(new_problem("mine", tmp_path / "my problems")))
    text = solution_text(own, SolutionLanguage.CUDA)
    assert f"warpgrade grade '{tmp_path}/my problems/mine' THIS_FILE" in text
    assert "float64" not in text
    odd = msgspec.structs.replace(own, path='a"""\nimport os')
    assert "warpgrade grade mine THIS_FILE" in solution_text(odd, SolutionLanguage.CUDA)


@pytest.mark.parametrize("own", [False, True])
def test_the_commands_of_the_agents_page_exist(tmp_path, monkeypatch, own):
    monkeypatch.chdir(tmp_path)
    if own:
        new_problem("mine", Path("my problems"))
    name, *folder = ["mine", "--problems", "my problems"] if own else ["relu"]
    assert main.run(["new", "solution", name, *folder, "--output", "kernels/fast.py", "--agent"]) == 0
    assert _left(tmp_path / "kernels") == ["AGENTS.md", "fast.py"]
    monkeypatch.chdir(tmp_path / "kernels")
    lines = re.findall(r"^    warpgrade (.*)$", Path("AGENTS.md").read_text(), re.MULTILINE)
    assert {line.split()[0] for line in lines} == {"doctor", "explain", "problems", "grade"}
    for line in lines:
        words = shlex.split(line, comments=True)
        command: click.Command = main.warpgrade
        while isinstance(command, click.Group):
            command = command.commands[words.pop(0)]
        named = command.make_context(command.name, words).params
        if "problems" in named:
            assert find_problem(named.get("problem", named.get("name")), named["problems"]).name == name
        assert Path(named.get("submission", "fast.py")).is_file()


def test_an_agents_page_is_never_overwritten(tmp_path):
    (tmp_path / "AGENTS.md").write_text("mine")
    with pytest.raises(UsageError, match=r"AGENTS.md already exists"):
        new_solution(find_problem("relu"), tmp_path / "relu.py", agents="ours")
    assert _left(tmp_path) == ["AGENTS.md"]
    assert (tmp_path / "AGENTS.md").read_text() == "mine"


def test_a_title_cannot_end_the_docstring():
    problem = msgspec.structs.replace(find_problem("relu"), title='"""\nimport os\\')
    assert ast.get_docstring(ast.parse(solution_text(problem, SolutionLanguage.CPP)))


def test_a_solution_is_written_and_never_overwritten(tmp_path):
    path = tmp_path / "deep" / "relu.py"
    new_solution(find_problem("relu"), path)
    text = path.read_text()
    with pytest.raises(UsageError, match=r"relu.py already exists"):
        new_solution(find_problem("relu"), path, SolutionLanguage.CPP)
    assert path.read_text() == text
    assert _left(path.parent) == ["relu.py"]


@pytest.mark.long
@pytest.mark.slow
def test_a_cpp_skeleton_compiles_and_agrees_with_its_reference(tmp_path):
    problem = find_problem("relu_backward")
    new_solution(problem, tmp_path / "solution.py", SolutionLanguage.CPP)
    (tmp_path / "reference.py").write_text(problem.source)
    code = (
        "import torch; from reference import Model; from solution import ModelNew\n"
        "x = torch.randn(4, 8, requires_grad=True); y = x.detach().clone().requires_grad_()\n"
        "a, b = Model()(x), ModelNew()(y); a.sum().backward(); b.sum().backward()\n"
        "print(torch.equal(a, b), torch.equal(x.grad, y.grad))"
    )
    environment = {"PATH": "/usr/bin:/bin:" + str(Path(sys.executable).parent), "TORCH_EXTENSIONS_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.split()[-2:] == ["True", "True"], done.stderr
