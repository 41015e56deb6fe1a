import re
import subprocess

import pytest

from evaluator.toolchain import host_compiler
from evaluator.toolchain import light_headers as light
from evaluator.toolchain.light_headers import LIGHT_FOLDER, light_headers, light_headers_for

SOURCE = """
#include <torch/extension.h>
torch::Tensor run(torch::Tensor x, torch::Tensor weight) {
    auto y = torch::layer_norm(x, {x.size(-1)}) + at::no_such_function;
    return torch::mm_out(y, x, weight) + relu(y * 2);
}
"""


def named(headers):
    return set(re.findall(r"ATen/ops/(\w+)\.h", headers[".light/ATen/Functions.h"]))


def test_the_words_that_are_functions_are_declared():
    without = named(light_headers_for([]))
    assert named(light_headers_for([SOURCE])) - without == {"layer_norm", "relu", "mm"}
    assert "var" in without  # The header of all functions has an overload of it that its own has not.


@pytest.mark.parametrize("text", ["../core/Tensor", "#include <ATen/ops/../core/Tensor.h>", "relu" * 10_000])
def test_a_word_is_no_more_than_a_word(text):
    assert named(light_headers_for([text])) == named(light_headers_for([]))


def test_where_the_header_of_all_functions_looks_otherwise_it_stays(tmp_path, monkeypatch):
    light._defined_beside_functions.cache_clear()
    monkeypatch.setattr(light, "_include", lambda: tmp_path)
    try:
        assert light_headers_for([SOURCE]) == light_headers()
        (tmp_path / "ATen").mkdir()
        (tmp_path / "ATen/Functions.h").write_text("#pragma once\n")
        light._defined_beside_functions.cache_clear()
        assert light_headers_for([SOURCE]) == light_headers()
    finally:
        light._defined_beside_functions.cache_clear()


def called(folder, headers, body):
    """Compile a unit; give the operations of PyTorch that it calls, or what the compiler said."""
    for name, text in headers.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "unit.cpp").write_text(f"#include <torch/types.h>\ntorch::Tensor run(torch::Tensor x) {{ {body} }}\n")
    includes = [f"-isystem{path}" for path in host_compiler.include_paths()]
    command = [
        host_compiler.cxx().path,
        f"-std={host_compiler.language_standard()}",
        "-fPIC",
        "-Wfatal-errors",
        f"-I{LIGHT_FOLDER}",
        *includes,
    ]
    said = subprocess.run(
        [*command, "-c", "unit.cpp", "-o", "unit.o"], cwd=folder, capture_output=True, text=True, check=False
    )
    if said.returncode:
        return said.stderr
    symbols = subprocess.run(
        ["nm", "-C", "-u", "unit.o"], cwd=folder, capture_output=True, text=True, check=True
    ).stdout
    return set(re.findall(r"at::_ops::(\w+)::call\((.*?)\)", symbols))


BODY = """
    auto [spread, middle] = torch::var_mean(x, -1);
    auto all = torch::std(x, 0) + torch::var(x, 1) + std::get<0>(torch::std_mean(x, 0)) + 2 * x / x;
    return torch::layer_norm(all, {at::size(x, 0)}) + (torch::is_complex(x) ? spread : middle) * at::numel(x);
"""


@pytest.mark.long
@pytest.mark.slow
def test_a_call_means_what_it_means_to_all_of_pytorch(tmp_path):
    ours, all_of_it = tmp_path / "ours", tmp_path / "all"
    ours.mkdir(), all_of_it.mkdir()
    found = called(ours, light_headers_for([BODY]), BODY)
    assert found == called(all_of_it, {}, BODY)
    assert {"var_correction", "std_correction", "var_mean_correction"} <= {name for name, _ in found}


@pytest.mark.slow
def test_what_was_not_named_cannot_be_called(tmp_path):
    said = called(tmp_path, light_headers_for(["relu"]), "return torch::layer_norm(torch::relu(x), {2});")
    assert re.findall(r"error: .(\w+). is not a member", said) == ["layer_norm"]
