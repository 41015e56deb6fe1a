"""The folders that builds are given are PyTorch's own, although nobody imports it to ask."""

import subprocess
import sys

from torch.utils import cpp_extension

from evaluator.build import toolchain


def test_headers_and_libraries_lie_where_pytorch_says():
    assert toolchain.include_paths() == cpp_extension.include_paths()
    assert [toolchain.library_path()] == cpp_extension.library_paths()


def test_builders_are_there_long_before_pytorch_is():
    script = (
        "import sys\n"
        "from evaluator.build import equipment, toolchain\n"
        "from evaluator.judge import early, tools\n"
        "toolchain.link_flags(), toolchain.compile_flags('e'), toolchain.native_flags()\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
