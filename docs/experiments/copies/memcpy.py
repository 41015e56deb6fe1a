import ctypes

import torch
from torch import nn

RUNTIME = ctypes.CDLL(None)
DEVICE_TO_DEVICE = 3


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        target, source = ctypes.c_void_p(y.data_ptr()), ctypes.c_void_p(x.data_ptr())
        assert RUNTIME.cudaMemcpyAsync(target, source, ctypes.c_size_t(x.numel() * 4), DEVICE_TO_DEVICE, None) == 0
        return y
