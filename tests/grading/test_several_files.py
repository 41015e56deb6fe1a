"""Grades of submissions of several files: builds, messages, replays."""

import json
import shutil

import pytest

from evaluator.files.card_files import read_card
from evaluator.findings import Code
from evaluator.protocol.submission_files import place_of
from evaluator.records import Status
from tests.grading.harness import COMMAND
from tests.serve.judge import Judge, facts

pytestmark = pytest.mark.slow

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
EMULATED = ("--device", "emulated", "--size", "awkward")
HALF = """#include <torch/types.h>
#include "place.cuh"
#include "../../include/relu.cuh"

__global__ void NAME_kernel(const float* from, float* to, long half, long n) {
    const long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i < half && PLACE(i, half) < n) {
        to[PLACE(i, half)] = relu_of(from[PLACE(i, half)]);
    }
}

void NAME_half(torch::Tensor from, torch::Tensor to) {
    const long n = from.numel(), half = (n + 1) / 2;
    NAME_kernel<<<(half + 255) / 256, 256>>>(from.data_ptr<float>(), to.data_ptr<float>(), half, n);
}
"""
HALVES = {
    "submission.toml": 'entry = "main.py"\n\n[extension]\nname = "halves"\nextra_cuda_cflags = ["-O3"]\n',
    "main.py": (
        "import halves\nimport torch\n\n\nclass ModelNew(torch.nn.Module):\n"
        "    def forward(self, x):\n        return halves.relu(x)\n"
    ),
    "csrc/bind.cpp": """#include <torch/extension.h>

void first_half(torch::Tensor from, torch::Tensor to);
void second_half(torch::Tensor from, torch::Tensor to);

torch::Tensor relu(torch::Tensor x) {
    auto y = torch::empty_like(x);
    first_half(x, y);
    second_half(x, y);
    return y;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("relu", &relu); }
""",
    "csrc/first/kernel.cu": HALF.replace("NAME", "first"),
    "csrc/first/place.cuh": "#define PLACE(i, half) (i)\n",
    "csrc/second/kernel.cu": HALF.replace("NAME", "second"),
    "csrc/second/place.cuh": "#undef PLACE\n#define PLACE(i, half) ((half) + (i))\n",
    "include/relu.cuh": "#pragma once\n__device__ inline float relu_of(float x) { return x > 0.f ? x : 0.f; }\n",
}
"""A CUDA file for each half of the tensor. Both files, and both headers, have the same name."""
PAST_THE_END = {"csrc/second/kernel.cu": HALVES["csrc/second/kernel.cu"].replace("from[PLACE", "from[100000000 + PLACE")}
FAULT_LINE = 8


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture
def graded(grader, tmp_path):
    """Grade FILES with changes on the CPU."""

    def grade(changed, *options):
        shutil.rmtree(tmp_path / "mine", ignore_errors=True)
        return grader(tmp_path, None, write(tmp_path / "mine", FILES | changed).name, *options)

    return grade


@pytest.fixture
def command(grader, tmp_path):
    """Run a command in the folder of the test."""

    def run(*arguments):
        return COMMAND.run(list(map(str, arguments)), cwd=tmp_path, env=grader.environment, stdin=None, timeout_s=1500)

    return run


@pytest.mark.parametrize(
    "files", [pytest.param({}, id="manifest"), pytest.param(BY_LOAD, id="load", marks=pytest.mark.long)]
)
def test_a_folder_is_built_with_its_headers(graded, files):
    card = graded(files).verdict(Status.CORRECT)
    assert [unit.ok for unit in card.build.units] == [True]


@pytest.mark.long
def test_a_header_is_part_of_the_key_and_its_error_names_file_and_line(graded):
    broken = FILES["include/relu.h"].replace("? x", "? missing_name")
    run = graded({"include/relu.h": broken})
    run.verdict(Status.BUILD_ERROR, Code.COMPILE_FAILED)
    assert "include/relu.h, line 2" in run.out
    lines = run.out.splitlines()
    shown = next(number for number, line in enumerate(lines) if ">    2" in line)
    assert lines[shown + 1].index("^") == lines[shown].index("missing_name")


def test_an_exception_names_the_file(graded):
    run = graded({"helper.py": "def launch(kernels, x):\n    return undefined_name\n"})
    card = run.verdict(Status.RUNTIME_ERROR, Code.FORWARD_FAILED)
    assert "helper.py, line 2" in run.out
    assert card.submission.source.split("\n")[card.reason.line - 1] == "    return undefined_name"


def test_flags_of_the_manifest_are_checked(graded):
    manifest = FILES["submission.toml"] + 'extra_cflags = ["-fplugin=./x.so"]\n'
    graded({"submission.toml": manifest}).verdict(Status.BUILD_ERROR, Code.FLAG_REFUSED)


@pytest.mark.long
def test_a_replay_needs_the_card_alone(graded, grader, tmp_path):
    card = graded({}).verdict(Status.CORRECT)
    shutil.rmtree(tmp_path / "mine")
    (tmp_path / "card.json").rename(tmp_path / "before.json")
    again = grader.run(tmp_path, "--replay", "before.json").verdict(Status.CORRECT)
    assert again.submission.sha256 == card.submission.sha256


def test_kernels_of_a_folder_run_on_the_emulated_device_in_a_batch(command, tmp_path):
    """Each file is compiled with the headers of its own folder, and a fault is placed in its own file."""
    submissions = tmp_path / "submissions"
    write(submissions / "relu" / "right", HALVES)
    write(submissions / "relu" / "wrong", HALVES | PAST_THE_END)
    done = command("batch", submissions, "--run", "run", *EMULATED)
    cards = {path.stem: read_card(path) for path in (tmp_path / "run").rglob("relu/*.json")}
    assert set(cards) == {"right", "wrong"}, done.stderr.decode()
    right, wrong = cards["right"], cards["wrong"]
    assert right.status is Status.CORRECT, right.reason
    assert right.checks[0].launches == 2
    assert (wrong.status, wrong.reason.code) == (Status.RUNTIME_ERROR, Code.ILLEGAL_ACCESS.value)
    assert place_of(wrong.submission.source, wrong.reason.line).label == f"csrc/second/kernel.cu, line {FAULT_LINE}"
    assert f"(csrc/second/kernel.cu, line {FAULT_LINE})" in wrong.reason.message
    file = "submissions/relu/wrong/csrc/second/kernel.cu"
    assert (
        f"{file}:{FAULT_LINE}: runtime_error R309".encode()
        in command("report", "run", "--output-format", "concise").stdout
    )
    (result,) = json.loads(command("report", "run", "--output-format", "sarif").stdout)["runs"][0]["results"]
    physical = result["locations"][0]["physicalLocation"]
    assert physical == {"artifactLocation": {"uri": file}, "region": {"startLine": FAULT_LINE}}
