"""Triton without a GPU: its compiler works for a named GPU, and a stand-in takes the place of the driver."""

import importlib.util
from types import SimpleNamespace

import pytest

HEAD = "import triton\nimport triton.language as tl\n\n\n"
"""Four lines in front of a test's kernel."""


class Driver:
    """Driver of a GPU that nothing runs on. `launched` names what was launched, `threads` is the most of a block."""

    def __init__(self, target):
        self._target = target
        self.launched = []
        self.threads = 1024
        self.utils = SimpleNamespace(
            get_device_properties=lambda _: {"max_shared_mem": 227 << 10},
            load_binary=lambda *_: (1, 2, 40, 3, self.threads),
        )

    def get_current_device(self):
        return 0

    def get_current_stream(self, _):
        return 0

    def get_current_target(self):
        return self._target

    def launcher_cls(self, _, metadata):
        return lambda *_, **__: self.launched.append(metadata.name)


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """Let Triton compile for an H100 without one."""
    pytest.importorskip("triton", reason="Triton is not installed: pip install 'warpgrade[triton]'")
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import CompiledKernel
    from triton.runtime import driver as active

    if hasattr(CompiledKernel, "__del__"):  # Of Triton 3.9: asks the driver, after the test too.
        del CompiledKernel.__del__
    found = Driver(GPUTarget("cuda", 90, 32))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton-cache"))
    monkeypatch.setattr(active, "_active", found)
    return found


@pytest.fixture
def submission(tmp_path):
    """Import a text as a submission, and give the module with the path of its file."""

    def imported(text):
        path = tmp_path / "submission.py"
        path.write_text(HEAD + text)
        spec = importlib.util.spec_from_file_location("submission", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module, str(path)

    return imported
