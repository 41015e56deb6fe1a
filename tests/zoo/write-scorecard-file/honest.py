"""A submission that writes a file of its own."""

import contextlib
import tempfile
from pathlib import Path

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        with contextlib.suppress(OSError):
            Path(tempfile.gettempdir(), "note.txt").write_text("called")
        return torch.relu(x)
