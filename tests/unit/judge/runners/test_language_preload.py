"""What fork servers import for a submission."""

import os
import subprocess
import sys
import types

import pytest

from evaluator.judge.context import grade_context
from evaluator.judge.context.context_pool import ContextPool
from evaluator.judge.runners.fork_servers import prepare_for
from evaluator.records import DeviceKind

TRITON = "import triton\nimport triton.language as tl\n"
CODE = """
import sys
import evaluator.runner.triton.preloaded
from triton.runtime import cache
print("triton" in sys.modules, cache.triton_key.cache_info().currsize)
"""


class Imports(list):
    """A fork server that keeps the names of modules to import."""

    def preload(self, module):
        self.append(module)


@pytest.mark.parametrize(
    ("source", "device", "imports"),
    [
        (TRITON, DeviceKind.CUDA, True),
        (TRITON, DeviceKind.EMULATED, True),
        (TRITON, DeviceKind.CPU, False),
        ("from torch.utils.cpp_extension import load_inline\n", DeviceKind.CUDA, False),
        # A variable that Triton reads at its import comes first.
        ("import os\nos.environ['TRITON_INTERPRET'] = '1'\n" + TRITON, DeviceKind.CUDA, False),
    ],
)
def test_a_text_that_names_triton_has_triton_imported(source, device, imports):
    fork_server = Imports()
    prepare_for(source, device, fork_server)
    assert fork_server == (["evaluator.runner.triton.preloaded"] if imports else [])


def test_a_lasting_pool_has_triton_imported_before_the_first_runner(monkeypatch):
    class Reached(Exception):
        pass

    def stop(terms, *_, **__):
        raise Reached

    monkeypatch.setattr(grade_context, "GradeContext", stop)
    terms = types.SimpleNamespace(device=DeviceKind.EMULATED, gpu=None)
    for lasting in (True, False):
        fork_server = Imports()
        pool = ContextPool(fork_server, lasting=lasting)
        with pytest.raises(Reached), pool.context_for(terms, TRITON, None):
            pass
        assert bool(fork_server) is lasting


@pytest.mark.parametrize(("interpret", "hashes"), [("0", "1"), ("1", "0")])
def test_the_module_imports_triton_and_hashes_its_files_unless_interpreted(interpret, hashes):
    pytest.importorskip("triton", reason="Triton is not installed: pip install 'warpgrade[triton]'")
    environment = {**os.environ, "TRITON_INTERPRET": interpret}
    done = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", hashes]
