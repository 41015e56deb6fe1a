"""Mode of `ModelNew`: training or evaluation, as in the reference.

In PyTorch the caller decides about the mode. Published kernels call `eval()` in their constructor and compute with
running statistics there, although they follow a `train()` of the caller.
"""

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # Frames are also read without torch, whose import takes seconds.
    import torch


class ModelMode(StrEnum):
    """Mode of all modules of a model, or as constructed: models with other modules cannot have the same mixed modes."""

    TRAIN = "train"
    EVAL = "eval"
    AS_CONSTRUCTED = "as_constructed"


def mode_of(model: "torch.nn.Module") -> ModelMode:
    """Return the mode of a model's modules; as constructed if they differ."""
    modes = {module.training for module in model.modules()}
    if len(modes) > 1:
        return ModelMode.AS_CONSTRUCTED
    return ModelMode.TRAIN if modes.pop() else ModelMode.EVAL


def set_mode(model: "torch.nn.Module", mode: ModelMode) -> None:
    """Put all modules of a model into a mode, or leave the model as constructed."""
    match mode:
        case ModelMode.TRAIN:
            model.train()
        case ModelMode.EVAL:
            model.eval()
        case ModelMode.AS_CONSTRUCTED:
            pass
