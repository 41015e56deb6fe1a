"""Compilers that have a name and never run: a function of each test stands in for the sandbox that would run them."""

import pytest

from evaluator.toolchain import host_compiler, nvcc
from evaluator.toolchain.host_compiler import InstalledTool


@pytest.fixture
def named_compilers(monkeypatch, tmp_path):
    monkeypatch.setattr(host_compiler, "cxx", lambda: InstalledTool("/usr/bin/g++", "g++ 1.0"))
    monkeypatch.setattr(host_compiler, "ninja", lambda: "/usr/bin/ninja")
    monkeypatch.setattr(nvcc, "nvcc", lambda: InstalledTool("/cuda/bin/nvcc", "Build cuda_13.0.r13.0/compiler.1"))
    monkeypatch.setattr(nvcc, "cuda_home", lambda: tmp_path / "cuda")
