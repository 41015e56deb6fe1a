"""The submission's `ModelNew`: read in, constructed, given weights, called. Everything it raises is passed on."""

import importlib.util
import linecache
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from evaluator.frames import Failed
from evaluator.runner.seeding import seed_torch

SUBMISSION_FILE = "submission.py"
MODEL_FILE = "model.py"
_MAX_MESSAGE = 8000
_MAX_LINES = 16


class NoModelNew(Exception):
    """The submission was read to its end and defines no class ModelNew."""


def read_in(folder: Path, submission: str, model: str) -> type:
    """Import the submission from `folder`, with the reference's `Model` importable as `model`, and find ModelNew."""
    (folder / MODEL_FILE).write_text(model, encoding="utf-8")
    path = folder / SUBMISSION_FILE
    path.write_text(submission, encoding="utf-8")
    sys.path.insert(0, str(folder))
    spec = importlib.util.spec_from_file_location("submission", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported")
    module: ModuleType = importlib.util.module_from_spec(spec)
    sys.modules["submission"] = module
    spec.loader.exec_module(module)
    found = getattr(module, "ModelNew", None)
    if not isinstance(found, type):
        raise NoModelNew("the submission defines no class ModelNew")
    return found


def construct(
    model_new: type, args: Sequence[Any], kwargs: dict[str, Any], *, weight_seed: int, training: bool, device: str
) -> Any:
    """Make ModelNew as the reference is made: under the same seed, in the same mode, then moved to `device`."""
    seed_torch(weight_seed)
    model = model_new(*args, **kwargs)
    if isinstance(model, torch.nn.Module):
        model.train(training)
        if device != "cpu":
            model.to(device)
    return model


def copy_weights(model: Any, state: dict[str, torch.Tensor]) -> str | None:
    """Copy the reference's `state` into `model`; where names or shapes differ, copy nothing and say what differs."""
    own = dict(model.state_dict()) if isinstance(model, torch.nn.Module) else {}
    missing, extra = sorted(state.keys() - own.keys()), sorted(own.keys() - state.keys())
    if missing or extra:
        parts = [f"missing: {', '.join(missing[:5])}"] if missing else []
        parts += [f"not in the reference: {', '.join(extra[:5])}"] if extra else []
        return "; ".join(parts)
    for name, tensor in state.items():
        if own[name].shape != tensor.shape or own[name].dtype != tensor.dtype:
            return (
                f"{name} is {own[name].dtype} {list(own[name].shape)}, "
                f"in the reference {tensor.dtype} {list(tensor.shape)}"
            )
    with torch.no_grad():
        for name, tensor in state.items():
            own[name].copy_(tensor)
    return None


def describe(error: BaseException, folder: Path) -> Failed:
    """Put an exception into a frame: its type, its message, and the submission's own lines on the way to it."""
    path = str(folder / SUBMISSION_FILE)
    linecache.checkcache(path)
    lines = [
        (entry.lineno or 0, (entry.line or "")[:500])
        for entry in traceback.extract_tb(error.__traceback__)
        if entry.filename == path
    ]
    if isinstance(error, SyntaxError) and error.filename == path:
        lines.append((error.lineno or 0, (error.text or "").rstrip()[:500]))
        return Failed(kind=type(error).__name__, message=str(error.msg)[:_MAX_MESSAGE], lines=lines[-_MAX_LINES:])
    return Failed(kind=type(error).__name__[:200], message=_text(error)[:_MAX_MESSAGE], lines=lines[-_MAX_LINES:])


def _text(error: BaseException) -> str:
    """Turn an exception into text; its own `__str__` is the submission's and may fail."""
    try:
        return str(error).encode(errors="replace").decode()  # A lone surrogate fits into no frame.
    except Exception:  # noqa: BLE001 - whatever the submission's __str__ does
        return "(its message cannot be printed)"
