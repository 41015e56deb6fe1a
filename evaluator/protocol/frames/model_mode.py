"""Training or evaluation mode of a constructed model."""

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # Frames are also read without torch, whose import takes seconds.
    import torch


class ModelMode(StrEnum):
    """Mode that a model is put into after its construction; a constructor may have called `eval()` itself."""

    AS_CONSTRUCTED = "as_constructed"
    EVAL = "eval"
    TRAIN = "train"


def set_mode(model: "torch.nn.Module", mode: ModelMode) -> None:
    """Call `eval()` or `train(True)`, or neither: a submission's own `train` may do more, or raise."""
    match mode:
        case ModelMode.AS_CONSTRUCTED:
            pass
        case ModelMode.EVAL:
            model.eval()
        case ModelMode.TRAIN:
            model.train(True)  # noqa: FBT003 - torch's signature


def evaluates(model: "torch.nn.Module") -> bool:
    """Return whether a module of the model is in evaluation mode."""
    return not all(module.training for module in model.modules())
