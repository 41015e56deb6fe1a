"""Submission in a separate program, without a judge: the target of a profiler that must launch its program.

The program draws the problem's inputs, makes one warm-up call and one profiled call. No result is timed or compared.
"""

import contextlib
import importlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import torch

from evaluator.protocol import model_call
from evaluator.protocol.frames.values import ModelMode
from evaluator.protocol.model_call import seed_all
from evaluator.protocol.pytree import mapped, tensors_of
from evaluator.protocol.standalone_call import FAILED, LoneCall, libraries_in, read_back
from evaluator.runner import submission_module
from evaluator.runner.extensions import ExtensionLoader

_MOST_SAID = 1000


def main() -> NoReturn:
    """Make the calls described in folder `sys.argv[2]` on the GPU. Print nothing unless the calls fail."""
    folder = Path(sys.argv[2])
    stderr = os.dup(2)
    _keep_quiet()
    try:
        run(read_back(folder), folder, torch.device("cuda"), torch.cuda.profiler.profile())
    except BaseException as error:  # noqa: BLE001 - SystemExit and KeyboardInterrupt too: they are the submission's
        failed = submission_module.describe(error)
        line = " ".join(f"{failed.kind}: {failed.message}".split())
        os.write(stderr, f"{FAILED}{line[:_MOST_SAID]}\n".encode())
        sys.exit(1)
    sys.exit(0)  # Normal exit, not os._exit: the injected profiler may have work left at exit.


def run(
    call: LoneCall, folder: Path, device: torch.device, watched: contextlib.AbstractContextManager[object]
) -> model_call.Result:
    """Import the submission from `folder` and call the model twice on `device`, the second time inside `watched`.

    Returns the second call's result. Raises any exception of the submission or the problem.
    """
    torch.set_num_threads(call.threads)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = call.tf32
    ExtensionLoader(libraries_in(folder), folder / "extensions").install()
    model_new = submission_module.read_in(folder, call.submission, call.model, call.entries)
    problem = importlib.import_module(Path(submission_module.MODEL_FILE).stem)

    def constructed(model: type, mode: ModelMode) -> Any:
        init = _arguments(problem.get_init_inputs())
        return submission_module.construct(model, *init, weight_seed=call.weight_seed, mode=mode, device=device.type)

    reference = constructed(problem.Model, ModelMode.EVAL if call.mode is ModelMode.EVAL else ModelMode.AS_CONSTRUCTED)
    model = constructed(model_new, call.mode)
    submission_module.copy_weights(model, reference.state_dict())
    gradients = None
    if call.backward:
        outputs = model_call.forward(reference, *_inputs(problem, call.seed, device)).outputs
        gradients = [torch.randn_like(leaf) for leaf in tensors_of(outputs) if leaf.is_floating_point()]
        del outputs
    del reference
    _called(model, _inputs(problem, call.seed, device), gradients, device, contextlib.nullcontext())
    # Draw the inputs again: a call may have written into its inputs.
    return _called(model, _inputs(problem, call.seed, device), gradients, device, watched)


def _called(
    model: Any,
    inputs: tuple[list[Any], dict[str, Any]],
    gradients: list[torch.Tensor] | None,
    device: torch.device,
    watched: contextlib.AbstractContextManager[object],
) -> model_call.Result:
    _wait(device)
    with watched:
        result = model_call.run(model, *inputs, gradients)
        _wait(device)
    return result


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def _inputs(problem: Any, seed: int, device: torch.device) -> tuple[list[Any], dict[str, Any]]:
    """Draw a call's inputs as the judge does, on `device` unless the problem's code names another device."""
    seed_all(seed)
    with device:
        args, kwargs = _arguments(problem.get_inputs())

    def moved(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().to(device)

    return mapped(args, moved), mapped(kwargs, moved)


def _arguments(value: Any) -> tuple[list[Any], dict[str, Any]]:
    return ([], dict(value)) if isinstance(value, Mapping) else (list(value), {})


def _keep_quiet() -> None:
    """Redirect stdout and stderr of this process to /dev/null."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
    os.close(nowhere)
