"""Grades on the machines of a Ray cluster: an actor for each slot, which runs a worker as this machine would.

Ray places actors and moves bytes, and nothing else: it tries nothing again (`max_restarts`, `max_task_retries`: 0), for
only the batch knows what was graded. What one machine built reaches the one with the GPU by its content, under the
cache's own keys. All machines need the same version of Warpgrade, and PyTorch.
"""

import contextlib
import logging
import os
import queue
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec
from msgspec.structs import replace

from evaluator.batch.workers.messages import Built, GpuModel, NotGraded, Order, Part, Reply, Result, Stage
from evaluator.batch.workers.worker_handle import LocalWorker, NoWorker, Slot
from evaluator.cache.build_cache import BuildCache, cache_folder
from evaluator.devices.gpu import choose
from evaluator.errors import InfraError, UsageError
from evaluator.grading.request import Library
from evaluator.records import DeviceKind, Outcome
from evaluator.sandbox.filesystem.visible_files import source_root
from evaluator.version import __version__

_PLACE_S = 60.0
"""How long a place for an actor is waited for: its machine may be gone, and the others may be taken."""
_LOOK_S = 120.0
_CONNECT_S = 10.0
_replies: msgspec.json.Decoder[Reply] = msgspec.json.Decoder(Reply)


class Needs(NamedTuple):
    """What an actor takes of its machine."""

    cpus: float
    gpus: float


class RayCluster:
    """A Ray cluster. A context manager: leaving it ends what was started there, and no machine of it."""

    def __init__(self, address: str) -> None:
        """Name it: an address, `auto` for the one that this machine belongs to, `local` for one of this machine alone.

        Raises:
            UsageError: Ray is not installed.
        """
        try:
            import ray
        except ImportError:
            raise UsageError("Ray is not installed", hint="pip install 'warpgrade[ray]'") from None
        self._ray: Any = ray
        self._address = address
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        ray = self._ray
        _refuse_silence(self._address)
        # What Ray has to say of lost machines is no product of ours; who writes to stdout has its stream already.
        self._stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        # Ray starts its workers in a folder of its own; they find this program as this process does.
        paths = os.pathsep.join([str(source_root()), *filter(None, [os.environ.get("PYTHONPATH")])])
        try:
            ray.init(
                address=None if self._address == "local" else self._address,
                log_to_driver=False,
                logging_level=logging.ERROR,
                include_dashboard=False if self._address == "local" else None,
                namespace="warpgrade",
                runtime_env={"env_vars": {"PYTHONPATH": paths}},
            )
        except (ConnectionError, ValueError, RuntimeError, OSError) as error:
            self._stack.close()
            first = str(error).strip().splitlines()[:1]
            hint = "start one with `ray start --head`, or say --ray local"
            raise InfraError(f"no Ray cluster answers at {self._address}: {' '.join(first)}", hint=hint) from error
        return self

    def __exit__(self, *_: object) -> None:
        with self._stack:
            self._ray.shutdown()

    def slots(self, device: DeviceKind, jobs: int | None) -> list[Slot]:
        """Share the cluster out.

        On `cuda` a slot for each GPU, and one that builds for each core (or `jobs`); on `emulated` one for each core
        (or `jobs`). On `cpu` one for each machine, which it has for itself: others would disturb its clock.

        Raises:
            UsageError: `--jobs` says nothing on `cpu`.
            InfraError: there is nothing to grade on.
        """
        total = self._ray.cluster_resources()
        cpus, gpus = int(total.get("CPU", 0)), int(total.get("GPU", 0))
        match device:
            case DeviceKind.CPU:
                if jobs is not None:
                    raise UsageError("--jobs has no effect on cpu with --ray: each machine runs one grade at a time")
                return [Slot()] * len(self._machines())
            case DeviceKind.EMULATED:
                if not cpus:
                    raise InfraError("the Ray cluster has no CPUs")
                return [Slot()] * (jobs or cpus)
            case DeviceKind.CUDA:
                if not gpus:
                    raise InfraError(
                        "the Ray cluster has no GPU", hint="add a machine with a GPU, or use --device emulated"
                    )
                facts = self._gpu_facts()
                builders = [Slot(part=Part.BEGIN, facts=facts)] * (jobs or max(cpus, 1))
                return [*([Slot(part=Part.FINISH, facts=facts)] * gpus), *builders]

    def hire(self, device: DeviceKind) -> Callable[[Slot, Path | None], "ActorHandle"]:
        """Give the maker of a crew's workers."""
        needs = {
            DeviceKind.CUDA: {Part.BEGIN: Needs(1, 0), Part.FINISH: Needs(0, 1)},
            DeviceKind.EMULATED: {Part.ALL: Needs(1, 0)},
            DeviceKind.CPU: {Part.ALL: Needs(min(self._machines(), default=1), 0)},
        }[device]
        return lambda slot, _log: ActorHandle(self._ray, slot, needs[slot.part])

    def _machines(self) -> list[float]:
        """List the CPUs of each machine that lives."""
        nodes = [node["Resources"].get("CPU", 0.0) for node in self._ray.nodes() if node["Alive"]]
        return [cpus for cpus in nodes if cpus]

    def _gpu_facts(self) -> GpuModel:
        """Ask one of the machines with a GPU what that is. All are taken to be of one kind."""
        look = self._ray.remote(num_gpus=1, num_cpus=0, max_retries=0)(_own_gpu)
        try:
            return msgspec.json.decode(self._ray.get(look.remote(), timeout=_LOOK_S), type=GpuModel)
        except self._ray.exceptions.RayError as error:
            raise InfraError(f"no machine of the Ray cluster reports its GPU: {error}") from error


def _refuse_silence(address: str) -> None:
    """Say at once that nobody is at `HOST:PORT`: Ray itself would try for many minutes."""
    host, colon, port = address.rpartition(":")
    if not colon or "/" in host or not port.isdecimal():
        return  # `auto`, `local`, or another kind of address, which Ray knows
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_S).close()
    except (OSError, OverflowError) as error:
        hint = "start one with `ray start --head`, or say --ray local"
        raise InfraError(f"no Ray cluster answers at {address}: {error}", hint=hint) from error


class ActorHandle:
    """A worker somewhere in the cluster, as the crew holds it (`worker_handle.WorkerHandle`)."""

    def __init__(self, ray: Any, slot: Slot, needs: Needs) -> None:
        """Start it. Raises NoWorker where no machine takes it."""
        self._ray = ray
        self._actor = (
            ray.remote(_Actor)
            .options(num_cpus=needs.cpus, num_gpus=needs.gpus, max_restarts=0, max_task_retries=0)
            .remote(slot.part.value)
        )
        try:
            version = ray.get(self._actor.version.remote(), timeout=_PLACE_S)
        except (ray.exceptions.GetTimeoutError, ray.exceptions.RayError) as error:
            self.interrupt()
            raise NoWorker(f"no machine of the Ray cluster has a free slot ({type(error).__name__})") from None
        if version != __version__:
            self.interrupt()
            raise InfraError(f"a machine of the Ray cluster has Warpgrade {version}, this one {__version__}")

    def grade(self, order: Order, on_stage: Callable[[Stage], None]) -> Result:
        """Have one grade made, or a part of it."""
        ray = self._ray
        try:
            for answer in self._actor.grade.options(num_returns="streaming").remote(msgspec.json.encode(order)):
                reply = _replies.decode(ray.get(answer))
                if not isinstance(reply, Stage):
                    return reply
                on_stage(reply)
        except ray.exceptions.RayError as error:
            return NotGraded(reason=f"the machine that made the grade was lost ({type(error).__name__})", again=True)
        return NotGraded(reason="the machine that made the grade said nothing", again=True)

    def interrupt(self) -> None:
        """Make it end its grade and itself."""
        with contextlib.suppress(Exception):  # Whatever keeps Ray from it: the actor ends with this process.
            self._ray.kill(self._actor, no_restart=True)

    def wait(self) -> None:
        """Nothing to wait for: Ray ends the actor's process, and its worker goes with it."""

    def close(self) -> None:
        """End it, with all that it started."""
        self.interrupt()


class _Actor:
    """On a machine of the cluster: a worker, and what it needs of the other machines."""

    def __init__(self, part: str) -> None:
        # Ray sets it to the CPUs of an actor, as a hint to libraries; how many threads there are is the judge's choice.
        os.environ.pop("OMP_NUM_THREADS", None)
        self._part = Part(part)
        self._worker = LocalWorker(Slot(), None)

    def version(self) -> str:
        """Say which Warpgrade this machine has."""
        return __version__

    def grade(self, encoded: bytes) -> Iterator[bytes]:
        """Make a grade: its stages, then its result."""
        order = msgspec.json.decode(encoded, type=Order)
        if order.begun is not None:
            _take_in(order.begun.libraries)
            order = replace(order, begun=replace(order.begun, libraries=[]))
        if self._part is Part.FINISH:
            order = replace(order, gpu=choose(_own_gpu_id()).uuid, facts=None)
        replies: queue.SimpleQueue[Stage | Result] = queue.SimpleQueue()
        making = threading.Thread(target=lambda: replies.put(self._worker.grade(order, replies.put)), daemon=True)
        making.start()
        while isinstance(reply := replies.get(), Stage):
            yield msgspec.json.encode(reply)
        if isinstance(reply, Built):
            reply = Built(begun=replace(reply.begun, libraries=list(_libraries(reply.begun.outcome))))
        yield msgspec.json.encode(reply)


def _libraries(outcome: Outcome) -> Iterator[Library]:
    """Read from this machine's cache what was built for a submission."""
    cache = BuildCache(cache_folder())
    for unit in outcome.build.units if outcome.build is not None else []:
        if unit.ok and (entry := cache.get(unit.key)) is not None:
            yield Library(key=unit.key, content=entry.library, log=entry.manifest.log, wall_s=entry.manifest.wall_s)


def _take_in(libraries: list[Library]) -> None:
    """Put into this machine's cache what another has built. Without it, it would be built again, on the GPU's time."""
    cache = BuildCache(cache_folder())
    for each in libraries:
        if cache.get(each.key) is None:
            cache.put(each.key, each.content, log=each.log, wall_s=each.wall_s)


def _own_gpu() -> bytes:
    gpu = choose(_own_gpu_id())
    return msgspec.json.encode(GpuModel(gpu.number, gpu.uuid, gpu.name, gpu.capability, gpu.memory_bytes, gpu.driver))


def _own_gpu_id() -> str:
    """Ask Ray which GPU is this actor's: its index, or its UUID."""
    import ray

    return str(ray.get_gpu_ids()[0])
