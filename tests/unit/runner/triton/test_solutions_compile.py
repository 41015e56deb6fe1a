"""Triton's compiler accepts the shipped solutions for an H100 at full size, with their blocks in shared memory.

The interpreter, which grades them on `emulated`, accepts more than the compiler. Nothing is launched.
"""

import importlib.util
import os

import pytest
import torch

from evaluator.paths import data_dir

pytestmark = pytest.mark.slow

SOLUTIONS = [path for path in sorted(data_dir("solutions").glob("*/triton_*.py")) if path.stem != "triton_autotuned"]
"""An autotuner measures on a GPU."""
FAST = ("gqa_decode", "moe_grouped_matmul_bf16", "quantize_fp8")
UNLESS_ASKED = pytest.mark.skipif(os.environ.get("WARPGRADE_SOLUTIONS") != "all", reason="WARPGRADE_SOLUTIONS=all")


def marked(path):
    marks = () if path.parent.name in FAST else (pytest.mark.long, UNLESS_ASKED)
    return pytest.param(path, marks=marks, id=path.parent.name)


def module(path):
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@pytest.mark.parametrize("path", [marked(path) for path in SOLUTIONS])
def test_a_solution_compiles_at_full_size(driver, monkeypatch, path):
    monkeypatch.setattr(torch, "bincount", lambda _, minlength: torch.empty(minlength, dtype=torch.int64))
    reference = module(data_dir("problems") / path.parent.name / "reference.py")
    solution = module(path)
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # Triton 3.9 warns where the choice is left to it.
    with torch.device("meta"):  # tensors without memory: no machine holds all problems at full size
        given = reference.get_init_inputs()
        model, expected = solution.ModelNew(*given), reference.Model(*given)
        outputs = model(*reference.get_inputs())
    assert driver.launched
    assert {name for name, _ in model.named_parameters()} == {name for name, _ in expected.named_parameters()}
    assert all(output.is_meta for output in ([outputs] if isinstance(outputs, torch.Tensor) else outputs))
