"""Grades of submissions of several files: builds, messages, replays."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, str(Path(__file__).parents[2] / "cli.py")]

FILES = {
    "submission.toml": 'entry = "main.py"\n\n[extension]\nname = "relu_kernels"\n',
    "main.py": (
        "import relu_kernels\nimport torch\nfrom helper import launch\n\n\n"
        "class ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return launch(relu_kernels, x)\n"
    ),
    "helper.py": "def launch(kernels, x):\n    return kernels.relu(x)\n",
    "include/relu.h": "#pragma once\ninline float relu_of(float x) { return x > 0.f ? x : 0.f; }\n",
    "csrc/relu.cpp": (
        '#include <torch/extension.h>\n#include "../include/relu.h"\n'
        "torch::Tensor relu(torch::Tensor x) {\n    auto y = torch::empty_like(x);\n"
        "    const float* from = x.data_ptr<float>();\n    float* to = y.data_ptr<float>();\n"
        "    for (long i = 0; i < x.numel(); ++i) to[i] = relu_of(from[i]);\n    return y;\n}\n"
        'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("relu", &relu); }\n'
    ),
}
BY_LOAD = {
    "submission.toml": 'entry = "main.py"\n',
    "main.py": (
        "import os\nimport torch\nfrom torch.utils.cpp_extension import load\nfrom helper import launch\n\n"
        "HERE = os.path.dirname(__file__)\n"
        'kernels = load("relu_kernels", [os.path.join(HERE, "csrc/relu.cpp")], extra_include_paths=[HERE])\n\n\n'
        "class ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return launch(kernels, x)\n"
    ),
    "csrc/relu.cpp": FILES["csrc/relu.cpp"].replace("../include/relu.h", "include/relu.h"),
}


@pytest.fixture
def graded(tmp_path):
    def grade(changed, *options):
        folder = tmp_path / "mine"
        shutil.rmtree(folder, ignore_errors=True)
        for name, text in (FILES | changed).items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        card = tmp_path / "card.json"
        arguments = ["grade", "relu", str(folder), "--device", "cpu", "--no-ready", "--output", str(card), *options]
        result = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False)
        return json.loads(Path(card).read_text()), result.stdout

    return grade


@pytest.mark.parametrize(
    "files", [pytest.param({}, id="manifest"), pytest.param(BY_LOAD, id="load", marks=pytest.mark.long)]
)
def test_a_folder_is_built_with_its_headers(graded, files):
    card, _ = graded(files)
    assert card["status"] == "correct", card["reason"]
    assert [unit["ok"] for unit in card["build"]["units"]] == [True]


@pytest.mark.long
def test_a_header_is_part_of_the_key_and_its_error_names_file_and_line(graded, tmp_path):
    broken = FILES["include/relu.h"].replace("? x", "? missing_name")
    card, screen = graded({"include/relu.h": broken})
    assert (card["status"], card["reason"]["code"]) == ("build_error", "B203")
    assert "include/relu.h, line 2" in screen
    lines = screen.splitlines()
    shown = next(number for number, line in enumerate(lines) if ">    2" in line)
    assert lines[shown + 1].index("^") == lines[shown].index("missing_name")


def test_an_exception_names_the_file(graded):
    card, screen = graded({"helper.py": "def launch(kernels, x):\n    return undefined_name\n"})
    assert card["status"] == "runtime_error"
    assert "helper.py, line 2" in screen
    assert card["submission"]["source"].split("\n")[card["reason"]["line"] - 1] == "    return undefined_name"


def test_flags_of_the_manifest_are_checked(graded):
    manifest = FILES["submission.toml"] + 'extra_cflags = ["-fplugin=./x.so"]\n'
    card, _ = graded({"submission.toml": manifest})
    assert card["reason"]["code"] == "B204"


@pytest.mark.long
def test_a_replay_needs_the_card_alone(graded, tmp_path):
    card, _ = graded({})
    shutil.rmtree(tmp_path / "mine")
    again = tmp_path / "again.json"
    arguments = ["grade", "--replay", str(tmp_path / "card.json"), "--no-ready", "--output", str(again)]
    assert subprocess.run([*COMMAND, *arguments], capture_output=True, check=False).returncode == 0
    assert json.loads(again.read_text())["submission"]["sha256"] == card["submission"]["sha256"]
