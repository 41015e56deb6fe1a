"""Which texts can leave a ModelNew behind, without running them."""

import pytest

from evaluator.submission.model_new import can_define, entry_name, looks_like_python


@pytest.mark.parametrize(
    "text",
    [
        "",
        "import torch\nclass Model(torch.nn.Module): pass\n",
        "class Modelnew: pass",
        "# evaluate the model, compiled: é",
        "torch.compile_it(model.eval_mode)",
        "Model = New = 1",
    ],
)
def test_these_cannot(text):
    assert not can_define(text, ["ModelNew"])


@pytest.mark.parametrize(
    "text",
    [
        "class ModelNew: pass",
        "from fast import Model as ModelNew",
        "exec(base64.b64decode(TEXT))",
        "from kernels import *",
        "from kernels import (\n    *)",
        "globals()['Model' + 'New'] = Model",
        "f.__globals__['Model' + 'New'] = Model",
        "def __getattr__(name): return Model",
        "setattr(sys.modules[__name__], 'Model' 'New', Model)",
        "class \uff2dodelNew: pass",
        "class \U0001d40codelNew: pass",
    ],
)
def test_these_could(text):
    assert can_define(text, ["ModelNew"])


def test_every_name_that_can_do_is_found_by_running_it_too():
    for text in ("class \uff2dodelNew: pass", "class \U0001d40codelNew: pass", "globals()['Model' + 'New'] = int"):
        names: dict[str, object] = {}
        exec(text, names)
        assert "ModelNew" in names


@pytest.mark.parametrize(
    "line",
    [
        "import torch",
        "import torch as t  # tensors",
        "from torch import nn\r",
        "def f(x):",
        "x = 1",
        "class M(nn.Module):",
    ],
)
def test_these_lines_are_python(line):
    assert looks_like_python(f"\n{line}\n")
    assert not looks_like_python(f"> {line}\n")


@pytest.mark.parametrize(
    "line",
    ["import the kernel", "from the torch we import", "# Title", "class of kernels", "x == 1", "define f(x):", ""],
)
def test_these_lines_are_prose(line):
    assert not looks_like_python(f"\n{line}\n")


@pytest.mark.parametrize("name", ["", "class", "a b", "Mod\u00e9le", "x" * 101, "A;B", "A.B", "1A"])
def test_an_entry_is_the_name_of_a_class(name):
    entry_name("Kernel_2")
    with pytest.raises(ValueError, match="not the name of a Python class"):
        entry_name(name)
