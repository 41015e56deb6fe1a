"""The kept list of CUDA's names, beside the headers of an installed toolkit."""

import pytest

from benchmarks.emulator.cuda_names import declared, list_text
from evaluator.emulator.frontend.cuda_names import CUDA_NAMES, LIST
from evaluator.errors import ToolchainMissing
from evaluator.toolchain import nvcc


def test_the_list_is_that_of_the_headers():
    try:
        version = nvcc.nvcc().version
    except ToolchainMissing as why:
        pytest.skip(str(why))
    if "cuda_13.0" not in version:
        pytest.skip(f"the list is of CUDA 13.0, nvcc is {version}")
    own_headers = {name for name in CUDA_NAMES if "/cuda/" in name}  # Of PyTorch, in any version.
    assert {name for name in declared() if "/cuda/" not in name} == CUDA_NAMES - own_headers


def test_the_list_has_one_form():
    assert LIST.read_text(encoding="utf-8") == list_text(CUDA_NAMES)
