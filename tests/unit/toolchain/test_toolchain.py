"""The folders that builds are given are PyTorch's own, although PyTorch is not imported."""

import subprocess
import sys

import pytest
from torch.utils import cpp_extension

from evaluator.toolchain import host_compiler


def test_headers_and_libraries_lie_where_pytorch_says():
    assert host_compiler.include_paths() == cpp_extension.include_paths()
    assert [host_compiler.library_path()] == cpp_extension.library_paths()


def test_builders_are_there_long_before_pytorch_is():
    script = (
        "import sys\n"
        "from evaluator.compile import device_builders\n"
        "from evaluator.toolchain import host_compiler\n"
        "import evaluator.judge.runners.fork_servers, evaluator.judge.runners.speculative_build\n"
        "host_compiler.link_flags(), host_compiler.compile_flags('e'), host_compiler.native_flags()\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_the_version_of_pytorch_is_read_once_for_all_builds(monkeypatch):
    first = host_compiler.fingerprint()
    monkeypatch.setattr("importlib.metadata.version", lambda _: pytest.fail("read again"))
    assert host_compiler.fingerprint() == first
