"""Launches of NVRTC's kernels that an ablation leaves out: all, or those with a name."""

import pytest
from torch.cuda import _utils as torch_nvrtc

from evaluator.runner import instrumentation


class Driver:
    """A driver without a GPU: keeps the handles of launched kernels."""

    def __init__(self):
        self.launched = []

    def cuModuleLoadData(self, module, _):  # noqa: N802
        module._obj.value = 1
        return 0

    def cuModuleGetFunction(self, function, _, name):  # noqa: N802
        function._obj.value = len(name)
        return 0

    def cuLaunchKernel(self, function, *_):  # noqa: N802
        self.launched.append(function.value)
        return 0


class Stream:
    _as_parameter_ = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


@pytest.fixture
def driver(monkeypatch):
    found = Driver()
    monkeypatch.setattr(torch_nvrtc, "_get_gpu_runtime_library", lambda: found)
    monkeypatch.setattr("torch.cuda.current_stream", Stream)
    monkeypatch.setattr(torch_nvrtc, "_cuda_load_module", torch_nvrtc._cuda_load_module)
    monkeypatch.setattr(torch_nvrtc._CudaKernel, "__call__", torch_nvrtc._CudaKernel.__call__)
    return found


LONG, SHORT = "_Z4reluIfEvPT_", "scale"


@pytest.mark.parametrize(
    ("left_out", "launched"), [(["relu"], [len(SHORT)]), (["scale"], [len(LONG)]), ([], []), (["elu"], [14, 5])]
)
def test_the_named_kernels_are_left_out(driver, left_out, launched):
    instrumentation.name_kernels()
    kernels = torch_nvrtc._cuda_load_module(b"binary", [LONG, SHORT])
    instrumentation.leave_out_launches(left_out)
    for kernel in kernels.values():
        kernel(grid=(1, 1, 1), block=(1, 1, 1), args=[1])
    assert driver.launched == launched
