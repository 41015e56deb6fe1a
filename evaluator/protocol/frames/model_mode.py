"""Training or evaluation mode of a constructed model."""

from enum import StrEnum


class ModelMode(StrEnum):
    """Mode that a model is put into after its construction; a constructor may have called `eval()` itself."""

    AS_CONSTRUCTED = "as_constructed"
    EVAL = "eval"
    TRAIN = "train"
