"""Grades of the ready judge: the crews of all devices, and the parts of one grade."""

import threading
from collections.abc import Callable

from msgspec.structs import replace

from evaluator.batch.workers.messages import Built, Graded, NotGraded, Order, Stage
from evaluator.batch.workers.slots import gpus_for, slots_for
from evaluator.batch.workers.worker_handle import LocalWorker
from evaluator.errors import WarpgradeError
from evaluator.grade_options import GradeOptions
from evaluator.records import DeviceKind
from evaluator.serve.call import ClientCall
from evaluator.serve.crew import Crew, GradeAbandoned
from evaluator.serve.slot_worker import Hire, SlotWorker
from evaluator.serve.status import WorkerStatus


class Grades:
    """Crews by device, made when first needed. Thread-safe."""

    def __init__(self, jobs: int | None, hire: Hire = LocalWorker) -> None:
        """Allow `jobs` concurrent grades on a device, on cuda builds; None takes the limit of the device."""
        self._jobs = jobs
        self._hire = hire
        self._changing = threading.Lock()
        self._crews: dict[DeviceKind, Crew] = {}

    def crew(self, device: DeviceKind) -> Crew:
        """Return the crew of a device. Raises WarpgradeError if the machine lacks the device."""
        with self._changing:
            if device not in self._crews:
                gpus = gpus_for(GradeOptions(device=device))
                # On cpu a single grade has all cores, as without a server: the card is the same.
                slots = slots_for(device, None if device is DeviceKind.CPU else self._jobs, gpus)
                self._crews[device] = Crew([SlotWorker(device, slot, self._hire) for slot in slots])
            return self._crews[device]

    def at_once(self, device: DeviceKind) -> int:
        """Return the number of concurrent grades on a device."""
        return len(self.crew(device).workers)

    def make(self, order: Order, call: ClientCall, on_stage: Callable[[Stage], None]) -> Graded | NotGraded:
        """Grade. Waits for a worker of the device."""
        try:
            crew = self.crew(order.options.device)
            return self._grade_parts(crew, order, call, on_stage)
        except WarpgradeError as error:
            return NotGraded(reason=error.message, again=False, hint=error.hint)
        except GradeAbandoned:
            return NotGraded(reason="the ready judge ended before the grade", again=True)

    def prepare(self, device: DeviceKind) -> None:
        """Start workers on a device in the background, until enough are ready."""
        threading.Thread(target=self.crew(device).prepare_spares, name="prepare", daemon=True).start()

    def release_idle(self, idle_s: float) -> None:
        """End workers that have been idle for `idle_s`."""
        for crew in self._all():
            crew.release_idle(idle_s)

    def close(self) -> None:
        """End all workers, even during a grade."""
        for crew in self._all():
            crew.close()

    @property
    def devices(self) -> list[DeviceKind]:
        """Devices with a crew."""
        with self._changing:
            return sorted(self._crews)

    @property
    def workers(self) -> list[WorkerStatus]:
        """Status of all workers."""
        statuses = [worker.status for crew in self._all() for worker in crew.workers]
        return [status for status in statuses if status is not None]

    def _grade_parts(
        self, crew: Crew, order: Order, call: ClientCall, on_stage: Callable[[Stage], None]
    ) -> Graded | NotGraded:
        def on_wait() -> None:
            on_stage(Stage(name="wait", detail="other grades of the ready judge"))

        for part in crew.parts:
            with crew.worker_for(part, order, call, on_wait) as worker:
                result = worker.grade(order, call, on_stage)
            if not isinstance(result, Built):
                return result
            order = replace(order, begun=result.begun)
        raise AssertionError("the last part ends a grade")

    def _all(self) -> list[Crew]:
        with self._changing:
            return list(self._crews.values())
