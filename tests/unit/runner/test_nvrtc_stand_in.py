"""Text that the emulator builds for a kernel of `torch.cuda._compile_kernel`."""

from types import SimpleNamespace

import pytest

from evaluator.runner import nvrtc
from evaluator.runner.nvrtc import NvrtcStandIn


@pytest.fixture
def built(monkeypatch):
    """Compile a kernel, and return what the judge was asked to build."""
    asked = []
    monkeypatch.setattr(nvrtc.ctypes, "CDLL", lambda path: SimpleNamespace(warpgrade_launch=SimpleNamespace()))

    def made(source, name):
        NvrtcStandIn(lambda *given: (asked.append(given), "library.so")[1])._compile(source, name)
        return asked[-1]

    return made


def test_a_last_backslash_does_not_take_the_launchers_first_line(built):
    text = built("__global__ void k() {}\n// the end \\", "k")[2]
    assert "\nextern" in text.replace("\\\n", "")


def test_a_file_has_a_name_of_ascii_letters(built):
    name, file, text, *_ = built("__global__ void é() {}", "é<1>")
    assert (name, file) == ("nvrtc___1_", "__1_.cu")
    assert "cudaLaunchKernel(\n        é<1>, " in text
