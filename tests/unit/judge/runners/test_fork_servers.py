"""What fork servers import for a submission."""

import importlib

import pytest

from evaluator.judge.runners.fork_servers import prepare_for


class Imports(list):
    """A fork server that keeps the names of modules to import."""

    def preload(self, module):
        self.append(module)


def test_only_a_text_that_names_triton_has_triton_imported():
    fork_server = Imports()
    prepare_for("import torch\nfrom torch.utils.cpp_extension import load_inline\n", fork_server)
    assert not fork_server
    prepare_for("import triton\nimport triton.language as tl\n", fork_server)
    assert fork_server == ["evaluator.runner.triton.preloaded"]


@pytest.mark.parametrize("interpret", ["0", "1"])
def test_the_module_imports_triton_and_hashes_its_files_unless_interpreted(monkeypatch, interpret):
    cache = pytest.importorskip("triton.runtime.cache", reason="needs pip install 'warpgrade[triton]'")
    calls = []
    monkeypatch.setenv("TRITON_INTERPRET", interpret)
    monkeypatch.setattr(cache, "triton_key", lambda: calls.append("hashed"))
    importlib.reload(importlib.import_module("evaluator.runner.triton.preloaded"))
    assert (calls[-1:] == ["hashed"]) is (interpret == "0")
