"""Code that runs while the library is loaded, and is harmless."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <unistd.h>

__attribute__((constructor)) static void at_load() { (void)getpid(); }
"""

extension = load_inline(
    name="zoo_looks",
    cpp_sources=SOURCE,
    is_python_module=False,
    no_implicit_headers=True,
)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x)
