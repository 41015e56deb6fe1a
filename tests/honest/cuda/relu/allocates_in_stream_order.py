"""Its workspace comes from cudaMallocAsync, in every call anew, and goes back by cudaFreeAsync."""

import ctypes

import torch
from torch import nn


class Memory:
    def __init__(self, address, shape):
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": "<f4",
            "data": (address, False),
            "strides": None,
            "version": 3,
        }


class ModelNew(nn.Module):
    def forward(self, x):
        runtime, place = ctypes.CDLL(None), ctypes.c_void_p()
        assert runtime.cudaMallocAsync(ctypes.byref(place), ctypes.c_size_t(x.numel() * 4), None) == 0
        scratch = torch.as_tensor(Memory(place.value, tuple(x.shape)), device="cuda")
        torch.clamp(x, min=0.0, out=scratch)
        y = scratch.clone()
        del scratch
        assert runtime.cudaFreeAsync(place, None) == 0
        return y
