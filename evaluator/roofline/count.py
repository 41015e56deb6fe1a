"""Count what one call of a problem's reference moves and computes, on PyTorch's meta device: nothing is allocated.

The problem's own code runs, as it does in `judge/reference.py`; its author is trusted. Tensors that it makes have
shapes and no memory, so a problem of any size is counted in the time that its Python takes.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch.utils.flop_counter import FlopCounterMode

from evaluator.catalog import sized_source
from evaluator.protocol import model_call
from evaluator.records import Mode, Problem, SizeName
from evaluator.roofline.storages import Looks, covered_bytes

_META = torch.device("meta")
_MODULE = "roofline_model"


class Work(NamedTuple):
    """What one call needs, where each byte is moved once.

    `read_bytes` are those of the storages of inputs, parameters and buffers (and of what is propagated back, where
    gradients are graded) that any operation looks into, each once, however many tensors lie in it. `written_bytes` are
    those of outputs and gradients that lie in storages of their own. `flop` are the operations of matrix products,
    convolutions and attention, forward and backward: a multiplication and an addition are two. Other arithmetic is not
    counted.

    Neither is the least that any program needs. A reference that gathers or cuts out a part of an input does not read
    all of it; one that multiplies by a diagonal matrix computes more than it must. Whoever derives a verdict from
    these numbers must first make sure that every byte matters.
    """

    read_bytes: int
    written_bytes: int
    flop: int


class Uncountable(NamedTuple):
    """Why a reference cannot be counted: its own code needs values, or a device, that the meta device lacks."""

    reason: str


def count(problem: Problem, size: SizeName) -> Work | Uncountable:
    """Count one call of `problem` at `size`, forward, and backward where the problem grades gradients.

    Raises:
        ProblemError: the problem has no such size, or the size and the reference do not fit together.
    """
    source = sized_source(problem, size)
    try:
        with contextlib.redirect_stdout(sys.stderr), registered() as module, _META:
            exec(compile(source, problem.path, "exec"), module.__dict__)  # noqa: S102 - the author's own code
            return _counted(module.__dict__, problem)
    except Exception as error:  # noqa: BLE001 - whatever it is, it says that there is no count
        return Uncountable(f"{type(error).__name__}: {error}")


def _counted(names: dict[str, Any], problem: Problem) -> Work | Uncountable:
    init_args, init_kwargs = arguments(names["get_init_inputs"])
    model = names["Model"](*init_args, **init_kwargs).to(_META)
    model.train(problem.mode is Mode.TRAIN)
    args, kwargs = arguments(names["get_inputs"])
    args, kwargs = on_meta(args), on_meta(kwargs)
    inputs = model_call.tensors_of([args, kwargs])
    gradients = _output_gradients(model, args, kwargs) if problem.backward else None
    given = covered_bytes([*inputs, *model.parameters(), *model.buffers(), *(gradients or [])])
    with Looks() as looks, FlopCounterMode(display=False) as counter:
        outputs, found = model_call.run(model, args, kwargs, gradients)
    made = covered_bytes(
        [*model_call.tensors_of(outputs), *(each for each in (found or {}).values() if each is not None)]
    )
    return Work(
        read_bytes=sum(size_bytes for key, size_bytes in given.items() if key in looks.storages),
        written_bytes=sum(size_bytes for key, size_bytes in made.items() if key not in given),
        flop=counter.get_total_flops(),
    )


def _output_gradients(model: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    outputs = model_call.forward(model, args, kwargs).outputs
    return [torch.empty_like(leaf) for leaf in model_call.tensors_of(outputs) if leaf.is_floating_point()]


def on_meta(value: Any) -> Any:
    """Move what the author's code made elsewhere (from NumPy, or on a device that it names) to the meta device.

    Tensors that share a storage keep sharing it only where they were made on the meta device.
    """
    if isinstance(value, torch.Tensor):
        return value.detach().to(_META)
    if isinstance(value, dict):
        return {key: on_meta(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(on_meta(item) for item in value)
    return value


def arguments(function: Callable[[], Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return the positional and the keyword arguments that `function` of a problem makes."""
    value = function()
    if isinstance(value, dict):
        return [], {str(key): item for key, item in value.items()}
    return list(value), {}


@contextlib.contextmanager
def registered() -> Iterator[ModuleType]:
    """Make a module that is known by its name: dataclasses and torch.jit look a class's module up there."""
    module = sys.modules[_MODULE] = ModuleType(_MODULE)
    try:
        yield module
    finally:
        del sys.modules[_MODULE]
