import re
import subprocess
from pathlib import Path

import pytest

from evaluator.build import toolchain
from evaluator.emulator.headers import functions_in, light_headers

INCLUDE = Path(toolchain.include_paths()[0])
SOURCE = """
#include <torch/extension.h>
torch::Tensor run(torch::Tensor x, torch::Tensor weight) {
    auto y = torch::layer_norm(x, {x.size(-1)}) + at::native_group_norm_stand_in;
    return relu(y * 2);
}
"""


def test_the_words_that_are_functions_are_found():
    assert functions_in([SOURCE], INCLUDE) == ["layer_norm", "relu", "size"]


def test_a_word_cannot_leave_the_folder_of_the_functions():
    assert functions_in(["../core/Tensor"], INCLUDE) == []
    assert functions_in(["#include <ATen/ops/../core/Tensor.h>"], INCLUDE) == []


def test_a_word_of_any_length_is_no_more_than_a_word():
    assert functions_in(["relu" * 10_000, "relu"], INCLUDE) == ["relu"]


def test_only_what_was_named_is_declared():
    few = light_headers(["relu"])["light/torch/types.h"]
    assert re.findall(r"ATen/ops/\w+", few) == ["ATen/ops/relu"]
    assert few.index("#define AT_PER_OPERATOR_HEADERS") < few.index("TensorOperators.h") < few.index("#undef")


@pytest.mark.parametrize(
    ("functions", "call", "compiles"),
    [
        (["layer_norm"], "torch::layer_norm(x, {2})", True),
        (["layer_norm"], "2 * x + x / x", True),
        (["relu"], "torch::layer_norm(x, {2})", False),
        (None, "torch::layer_norm(x, {2})", True),
    ],
)
def test_a_function_that_was_named_can_be_called(tmp_path, functions, call, compiles):
    for name, text in light_headers(functions).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    unit = tmp_path / "unit.cpp"
    unit.write_text(f"#include <torch/types.h>\ntorch::Tensor run(torch::Tensor x) {{ return {call}; }}\n")
    includes = [f"-isystem{path}" for path in toolchain.include_paths()]
    command = [toolchain.cxx().path, f"-std={toolchain.language_standard()}", "-fsyntax-only", "-Ilight", *includes]
    said = subprocess.run([*command, unit.name], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (said.returncode == 0) is compiles, said.stderr
    assert compiles or "layer_norm" in said.stderr
