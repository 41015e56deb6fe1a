"""The loop of a runner: one frame in, one frame out, until the judge hangs up."""

import contextlib
import os
import socket
import sys
from pathlib import Path
from typing import Any, NoReturn

import torch

from evaluator.frames import (
    Call,
    Channel,
    Closed,
    Construct,
    Constructed,
    Done,
    Frame,
    Load,
    Loaded,
    Prepare,
    Queued,
    Scalar,
    TensorView,
    ToRunner,
)
from evaluator.runner import calls, module
from evaluator.runner.extensions import ExtensionLoader
from evaluator.runner.gpu import places
from evaluator.runner.memory import Shared, take_over
from evaluator.runner.seeding import seed_torch
from evaluator.runner.trees import Outbox, to_value


def run(sock: socket.socket, private: Path) -> NoReturn:
    """Answer the judge's frames over `sock`; keep files in `private`. Ends the process when the judge hangs up."""
    runner = Runner(Channel(sock, receives=ToRunner), private)
    with contextlib.suppress(Closed):
        while True:
            runner.serve_one()
    os._exit(0)


class Runner:
    """A submission, from its import to its last call."""

    def __init__(self, channel: Channel, private: Path) -> None:
        """Speak over `channel`; keep files in `private`."""
        self._channel = channel
        self._private = private
        self._model_new: type | None = None
        self._model: Any = None
        self._memory: Shared | None = None
        self._held: list[calls.Result] = []

    def serve_one(self) -> None:
        """Wait for a frame, do what it says, answer. Whatever the submission raises becomes the answer."""
        frame = self._channel.receive()
        try:
            answer = self._answer(frame)
        except Closed:
            raise
        except BaseException as error:  # noqa: BLE001 - SystemExit and KeyboardInterrupt too: they are the submission's
            answer = module.describe(error, self._private)
        if not isinstance(answer, Done) or isinstance(frame, Prepare):
            _flush()  # Never inside the clock; what is still unwritten when a runner is killed is lost.
        self._channel.send(answer)

    def _answer(self, frame: Frame) -> Frame:
        match frame:
            case Load():
                return self._load(frame)
            case Construct():
                return self._construct(frame)
            case Prepare():
                return self._prepare(frame)
            case Call():
                return self._call(frame)
            case _:
                raise TypeError(f"no frame of this type is expected here: {type(frame).__name__}")

    def _load(self, frame: Load) -> Frame:
        self._memory = take_over(frame, self._channel.take_descriptors(), self._held.clear)
        torch.set_num_threads(frame.threads)
        ExtensionLoader(self._channel, self._private / "extensions").install()
        self._model_new = module.read_in(self._private, frame.submission, frame.model)
        return Loaded()

    def _construct(self, frame: Construct) -> Frame:
        if self._model_new is None:
            raise RuntimeError("nothing is loaded")
        memory = self._shared
        args = _cloned(to_value(frame.args, memory.inputs))
        kwargs = _cloned(to_value(frame.kwargs, memory.inputs))
        self._model = module.construct(
            self._model_new,
            args,
            kwargs,
            weight_seed=frame.weight_seed,
            training=frame.training,
            device=memory.arena.device,
        )
        state = to_value(frame.state, memory.inputs)
        return Constructed(difference=module.copy_weights(self._model, state))

    def _prepare(self, frame: Prepare) -> Frame:
        """Keep the last call's outputs alive, so that two which share memory are seen to share it; free older ones."""
        del self._held[:-1]
        self._shared.arena.poison(frame.poison, frame.ahead_bytes)
        seed_torch(frame.random_seed)
        return Done(index=frame.index, outputs=Scalar(value=None))

    def _call(self, frame: Call) -> Frame:
        memory = self._shared
        args = to_value(frame.args, memory.inputs)
        kwargs = to_value(frame.kwargs, memory.inputs)
        gradients = None
        if frame.output_gradients is not None:
            gradients = to_value(frame.output_gradients, memory.inputs)
        if memory.gate is not None:
            memory.gate.wait(frame.ticket)
        if frame.empty:
            memory.arena.probe()
            result, launches = self._held.pop(), None
        elif memory.emulation is None:
            result, launches = calls.run(self._model, args, kwargs, gradients), None
        else:
            result, launches = memory.emulation.run(self._model, args, kwargs, gradients, frame.schedule)
        outbox = Outbox(memory.arena)
        answer = Done(
            index=frame.index,
            outputs=outbox.from_value(result.outputs),
            gradients=_gradient_views(result.gradients, outbox),
            launches=launches,
        )
        if memory.gate is not None:
            gradient_places = [
                place
                for name, view in (answer.gradients or {}).items()
                if view is not None
                for place in places(view, f"gradient of {name}")
            ]
            memory.gate.leave(frame.ticket, [*places(answer.outputs), *gradient_places])
            self._channel.send(Queued(index=frame.index))
            torch.cuda.synchronize()  # What went wrong on the GPU is raised here.
        self._held.append(result)
        return answer

    @property
    def _shared(self) -> Shared:
        if self._memory is None:
            raise RuntimeError("nothing is loaded")
        return self._memory


def _flush() -> None:
    """Write out what the submission printed, through whatever it left in the place of its streams."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def _gradient_views(
    gradients: dict[str, torch.Tensor | None] | None, outbox: Outbox
) -> dict[str, TensorView | None] | None:
    if gradients is None:
        return None
    views: dict[str, TensorView | None] = {}
    for name, gradient in gradients.items():
        view = None if gradient is None else outbox.from_tensor(gradient)
        views[name] = view if isinstance(view, TensorView) else None
    return views


def _cloned(value: Any) -> Any:
    """Copy the tensors of a constructor's arguments: the memory they came in is used again for the inputs.

    A model is made on the CPU and then moved, on a GPU too, as the reference is.
    """
    if isinstance(value, torch.Tensor):
        return value.to("cpu", copy=True)
    if isinstance(value, list | tuple):
        return type(value)(_cloned(item) for item in value)
    if isinstance(value, dict):
        return {key: _cloned(item) for key, item in value.items()}
    return value
