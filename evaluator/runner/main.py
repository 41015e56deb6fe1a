"""Runner loop: one request frame, one answer frame, until the judge closes the connection."""

import contextlib
import os
import socket
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import torch

from evaluator.protocol import model_call
from evaluator.protocol.frames import (
    Call,
    Channel,
    Closed,
    Construct,
    Constructed,
    Count,
    Counted,
    Done,
    EmulatorSchedule,
    Frame,
    LeaveOut,
    LeftOut,
    Load,
    Loaded,
    Masked,
    Prepare,
    ProfiledCall,
    Queued,
    ReadKernels,
    Scalar,
    TensorView,
    ToRunner,
    Warm,
    Warmed,
    Window,
    WindowDone,
)
from evaluator.protocol.frames.bounds import MOST_ASSUMED
from evaluator.protocol.model_call import seed_torch
from evaluator.protocol.pytree import mapped
from evaluator.runner import submission_module
from evaluator.runner.device_arena import Gate, answer_places, warm_up
from evaluator.runner.extensions import ExtensionLoader
from evaluator.runner.instrumentation import (
    OpCounter,
    OwnFunctions,
    leave_out_launches,
    leave_out_library,
    name_kernels,
    profiled,
)
from evaluator.runner.nvrtc import NvrtcStandIn
from evaluator.runner.parameters import ChangingParameters, take_over_state
from evaluator.runner.printed_output import Printing
from evaluator.runner.shared_memory import Outbox, Shared, take_over, to_tensor, to_value
from evaluator.runner.triton.compilation import compiled_kernels, forget_import, use_folder
from evaluator.runner.triton.launches import leave_out_compiled

_MOST_NAME = 200
"""Characters of a tensor's name in an answer."""


def run(sock: socket.socket, private: Path) -> NoReturn:
    """Answer the judge's frames over `sock`, with files in `private`. Exit the process at the end of the connection.

    The judge waits until this side ends the connection, too: the output is flushed.
    """
    runner = Runner(Channel(sock, receives=ToRunner), private)
    with contextlib.suppress(Closed):
        while True:
            runner.serve_one()
    runner.printing.flush()
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    os._exit(0)


class Runner:
    """State of a submission, from import to last call."""

    def __init__(self, channel: Channel, private: Path) -> None:
        """Communicate over `channel`; store files in `private`."""
        self._channel = channel
        self._private = private
        self._model_new: type | None = None
        self._model: Any = None
        self._memory: Shared | None = None
        self._held: list[list[model_call.Result]] = []
        """Results of the last calls: one of a call, several of a window."""
        self._weights = ChangingParameters()
        """Names of the submission's tensors, by the reference's names."""
        self._extensions: ExtensionLoader | None = None
        self._op_counter: OpCounter | None = None
        self.printing = Printing()
        self._called = False
        self._own_functions: OwnFunctions | None = None
        """Wrappers around the functions of extensions, in runners with an ablation of own kernels."""

    def serve_one(self) -> None:
        """Wait for a frame, execute the request, send the answer. Any exception of the submission becomes `Raised`."""
        frame = self._channel.receive()
        try:
            answer = self._answer(frame)
        except Closed:
            raise
        except BaseException as error:  # noqa: BLE001 - SystemExit and KeyboardInterrupt too: they are the submission's
            answer = submission_module.describe(error)
        if not isinstance(answer, Done | WindowDone) or isinstance(frame, Prepare):
            self.printing.flush()  # Outside the timed interval.
        if isinstance(frame, Prepare) and self._called:
            self.printing.in_blocks()
        self._called = self._called or isinstance(frame, Call | Window)
        self._channel.send(answer)

    def _answer(self, frame: Frame) -> Frame:
        match frame:
            case Warm():
                warm_up(frame.device)
                return Warmed()
            case Load():
                return self._load(frame)
            case Construct():
                return self._construct(frame)
            case Prepare():
                return self._prepare(frame)
            case Call() | Window():
                return self._call(frame) if isinstance(frame, Call) else self._window(frame)
            case ProfiledCall():
                return self._profiled(frame)
            case Count() | ReadKernels():
                return self._counted() if isinstance(frame, Count) else compiled_kernels(self._private)
            case LeaveOut():
                self._leave_out(frame)
                return LeftOut()
            case _:
                raise TypeError(f"no frame of this type is expected here: {type(frame).__name__}")

    def _load(self, frame: Load) -> Frame:
        self._memory = take_over(frame, self._channel.take_descriptors(), self._held.clear)
        torch.set_num_threads(frame.threads)
        self._extensions = ExtensionLoader(
            self._channel,
            self._private / "extensions",
            None if self._own_functions is None else self._own_functions.wrap,
        )
        self._extensions.install()
        if self._memory.emulation is not None:
            NvrtcStandIn(self._extensions.load_file).install()
        use_folder(self._private, frame.kernel_cache)
        forget_import(frame.submission)
        self._model_new = submission_module.read_in(self._private, frame.submission, frame.model, frame.entries)
        return Loaded()

    def _construct(self, frame: Construct) -> Frame:
        if self._model_new is None:
            raise RuntimeError("nothing is loaded")
        memory = self._shared
        args = _cloned(to_value(frame.args, memory.inputs))
        kwargs = _cloned(to_value(frame.kwargs, memory.inputs))
        if frame.changing:
            memory.arena.open()
        self._model = submission_module.construct(
            self._model_new,
            args,
            kwargs,
            weight_seed=frame.weight_seed,
            mode=frame.mode,
            device=memory.arena.device,
        )
        state = to_value(frame.state, memory.inputs)
        counterparts = take_over_state(self._model, state, frame.parameters, frame.changing, seeded=frame.seeded)
        changing = {name: counterparts.pairs[name] for name in frame.changing if name in counterparts.pairs}
        self._weights = ChangingParameters(self._model, changing)
        outbox = Outbox(memory.arena)
        return Constructed(
            difference=counterparts.difference,
            weights={name: outbox.place_of(view) for name, view in self._weights.views.items()},
            assumed={name: own_name[:_MOST_NAME] for name, own_name in [*counterparts.assumed.items()][:MOST_ASSUMED]},
            partly_in_evaluation=submission_module.is_partly_in_evaluation(self._model),
        )

    def _prepare(self, frame: Prepare) -> Frame:
        """Keep the last call's outputs alive, for the judge's check of shared memory between calls; free older ones."""
        del self._held[:-1]
        moved = self._weights.look()
        self._shared.arena.poison(frame.poison, frame.ahead_bytes)  # Poison last: no memory is freed after the fill.
        return Done(index=frame.index, token=frame.token, outputs=Scalar(value=None), moved=moved)

    def _call(self, frame: Call) -> Frame:
        """Make one call. Seeding is timed: a submission that learns the seed earlier could draw the numbers earlier."""
        memory = self._shared
        seed_torch(frame.random_seed)
        values = self._values(frame)
        weights = self._weights_of(frame)
        if memory.gate is not None:
            memory.gate.wait(frame.ticket)
        self._weights.follow(weights)
        answer, result = self._answered(frame, values)
        if memory.gate is not None:
            memory.gate.leave(frame.ticket, answer_places(answer), frame.sampled)
            self._channel.send(Queued(index=frame.index))
            torch.cuda.synchronize()  # Raises pending GPU errors.
        self._held.append([result])
        return answer

    def _window(self, frame: Window) -> Frame:
        """Queue all calls of a window, then report the calls together."""
        memory, first = self._shared, frame.calls[0]
        if memory.gate is None:
            raise TypeError("a window needs a GPU")
        seed_torch(first.random_seed)
        values = [self._values(call) for call in frame.calls]
        if not frame.masked:
            weights = self._weights_of(first)
            memory.gate.wait(first.ticket)
            self._weights.follow(weights)
        answers, results = [], []
        for number, call in enumerate(frame.calls):
            if frame.masked:
                answer, result = self._spot_call(memory.gate, number, call, values[number], frame.masked[number])
            else:
                answer, result = self._answered(call, values[number])
            answers.append(answer)
            results.append(result)
        places = [
            place._replace(path=f"{number} {place.path}")
            for number, answer in enumerate(answers)
            for place in answer_places(answer)
        ]
        memory.gate.leave(first.ticket + len(frame.masked), places, first.sampled)
        self._channel.send(Queued(index=first.index))
        torch.cuda.synchronize()  # Raises pending GPU errors.
        self._held.append(results)
        return WindowDone(calls=answers)

    def _spot_call(
        self, gate: Gate, number: int, call: Call, values: "_Values", masked: Masked
    ) -> tuple[Done, model_call.Result]:
        """Queue one call of a spot check, which begins with its release and ends with its digest.

        Each call has its own weights, so that what follows from them is computed in each call.
        """
        weights = self._weights_of(call)
        self._weights.look()
        gate.unmask(call.ticket, number, masked)
        self._weights.follow(weights)
        answer, result = self._answered(call, values)
        gate.digest(number, answer)
        return answer, result

    def _values(self, call: Call | ProfiledCall) -> "_Values":
        inputs, gradients = self._shared.inputs, call.output_gradients
        return _Values(
            to_value(call.args, inputs),
            to_value(call.kwargs, inputs),
            None if gradients is None else to_value(gradients, inputs),
        )

    def _weights_of(self, call: Call) -> dict[str, torch.Tensor]:
        """Return the weights that the runner copies in a call."""
        return {name: to_tensor(view, self._shared.inputs) for name, view in call.weights.items()}

    def _answered(self, frame: Call, values: "_Values") -> tuple[Done, model_call.Result]:
        """Run the model, or the work of an empty call, and describe the result."""
        memory = self._shared
        if frame.empty:
            if frame.probes:
                memory.arena.probe(forked=frame.forked)
            result, launches, refused = self._held[-1][0], None, ""
        else:
            with self._op_counter or contextlib.nullcontext():
                result, launches, refused = self._run(*values, frame.schedule)
            result = model_call.readable(result)
        outbox = Outbox(memory.arena)
        answer = Done(
            index=frame.index,
            token=frame.token,
            outputs=outbox.from_value(result.outputs),
            gradients=_gradient_views(result.gradients, outbox),
            launches=launches,
            refused=refused,
        )
        return answer, result

    def _profiled(self, frame: ProfiledCall) -> Frame:
        values = self._values(frame)
        return profiled(lambda: self._run(*values, None), gpu=self._shared.gate is not None)

    def _run(
        self, args: Any, kwargs: Any, gradients: Any, schedule: EmulatorSchedule | None
    ) -> tuple[model_call.Result, int | None, str]:
        """Call the model. Return the result; and on `emulated`, the number of launches and the first refused launch."""
        if self._shared.emulation is None:
            return model_call.run(self._model, args, kwargs, gradients), None, ""
        return self._shared.emulation.run(self._model, args, kwargs, gradients, schedule)

    def _counted(self) -> Counted:
        """Begin a count, or end a count that has begun."""
        emulation, ended = self._shared.emulation, self._op_counter
        if ended is not None:
            self._count_with(None)
            return ended.counted()
        self._count_with(OpCounter((lambda: (0, 0)) if emulation is None else emulation.launches))
        return Counted(launches=0, library_calls=0, own_calls=0, mixed_calls=0)

    def _count_with(self, op_counter: OpCounter | None) -> None:
        self._op_counter = op_counter
        if self._own_functions is not None:
            self._own_functions.op_counter = op_counter

    def _leave_out(self, frame: LeaveOut) -> None:
        """Prepare or begin the omission of one part of the work."""
        if not frame.begin:
            self._own_functions = OwnFunctions() if frame.what == "kernels" else None
            if frame.what == "jit":
                name_kernels()
            return
        self._count_with(None)  # A failed call leaves its count open.
        emulation = self._shared.emulation
        match frame.what:
            case "library":
                leave_out_library("cpu" if emulation is not None else self._shared.arena.device)
            case "jit":
                leave_out_compiled(frame.kernels)
                leave_out_launches(frame.kernels)
            case "kernels" if emulation is None and self._own_functions is not None:
                self._own_functions.leave_out()
        if emulation is not None and frame.what != "jit":
            emulation.leave_out(frame.what)

    @property
    def _shared(self) -> Shared:
        if self._memory is None:
            raise RuntimeError("nothing is loaded")
        return self._memory


class _Values(NamedTuple):
    """Inputs of a call as views of shared memory."""

    args: Any
    kwargs: Any
    gradients: Any


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
    """Copy the tensors of constructor arguments to the CPU: call inputs overwrite the shared memory.

    As for the reference, the model is constructed on the CPU and then moved to the device.
    """
    return mapped(value, lambda tensor: tensor.to("cpu", copy=True))
