"""Grades in two parts: many slots build, one for each GPU checks and times what is built."""

import contextlib
import threading
import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from evaluator.batch.runs.inputs import from_text
from evaluator.batch.runs.problems import Problems
from evaluator.batch.workers import queues, worker_pool
from evaluator.batch.workers.messages import (
    Built,
    GpuModel,
    GradeFinished,
    GradePart,
    NotGraded,
    StageEntered,
    WorkerOrder,
)
from evaluator.batch.workers.queues import BuiltTask, GpuQueue, TaskStream
from evaluator.batch.workers.worker_handle import NoWorker, Slot
from evaluator.batch.workers.worker_pool import SlotDrained, TaskEnded, WorkerPool
from evaluator.findings import Code, finding
from evaluator.grade_options import GradeOptions
from evaluator.grading.request import Begun
from evaluator.progress import Lap
from evaluator.records import DeviceKind, Outcome, SizeName, Status
from tests import cards
from tests.batch.fakes import FakeWorker, soon

PROBLEMS = Problems(None, (SizeName.SMALL,))
BEGUN = Begun(outcome=Outcome(), lap=Lap("2026-01-01T00:00:00.000+00:00", {"build": 2.0}, 2.0))


def task(problem, number, what="right"):
    return from_text(f"# {what}", f"s{number}", f"s{number}.py", PROBLEMS.find(problem))


class TwoParts(FakeWorker):
    """Begins and finishes: `# uncompiled` ends with the first part, `# infra N` fails N times in the second."""

    orders: list[tuple[GradePart, str | None, str, str]]
    on_gpu: Counter

    def grade(self, order, on_stage):
        source = order.submission.source
        with self.lock:
            self.orders.append((order.part, order.options.gpu, order.problem.name, order.submission.name))
        if order.part is GradePart.BEGIN:
            if "uncompiled" in source:
                return GradeFinished(cards.uncompiled_card())
            return Built(BEGUN)
        assert order.begun == BEGUN
        with self.lock:
            self.on_gpu[order.options.gpu] += 1
            assert self.on_gpu[order.options.gpu] == 1
            self.graded[source] += 1
            again = "infra" in source and self.graded[source] <= int(source.split()[-1])
        on_stage(StageEntered("check", ""))
        with self.lock:
            self.on_gpu[order.options.gpu] -= 1
        if again:
            return NotGraded("the GPU fell off the bus", again=True)
        return GradeFinished(cards.card())


@pytest.fixture
def two_parts(worker, monkeypatch):
    monkeypatch.setattr(TwoParts, "orders", [], raising=False)
    monkeypatch.setattr(TwoParts, "on_gpu", Counter(), raising=False)
    monkeypatch.setattr(worker_pool, "LocalWorker", TwoParts)
    return TwoParts


def run(tasks, gpus=("a",), builders=3, **options):
    slots = [
        *(Slot(gpu=gpu, part=GradePart.FINISH) for gpu in gpus),
        *[Slot(gpu=gpus[0], part=GradePart.BEGIN)] * builders,
    ]
    left, ended, coming = len(slots), [], iter(tasks)
    with WorkerPool(slots, GradeOptions(DeviceKind.CUDA), TaskStream(lambda: next(coming, None)), **options) as working:
        while left:
            event = working.events.get(timeout=120)
            if isinstance(event, TaskEnded):
                ended.append(event)
            elif isinstance(event, SlotDrained):
                assert event.error is None
                left -= 1
    return ended


def test_what_is_built_is_finished_on_a_gpu_and_the_rest_never_sees_one(two_parts):
    tasks = [task("relu", number, "uncompiled" if number % 3 == 0 else "right") for number in range(9)]
    ended = run(tasks)
    assert len(ended) == 9
    statuses = Counter(event.result.card.status for event in ended)
    assert statuses == {Status.CORRECT: 6, Status.BUILD_ERROR: 3}
    finished = {name for part, _, _, name in two_parts.orders if part is GradePart.FINISH}
    assert finished == {each.name for each in tasks if "right" in each.submission.source}
    assert all(slot in (0, 1, 2, 3) for slot in {event.slot for event in ended})


def test_a_gpu_that_fails_does_not_build_again(two_parts):
    (ended,) = run([task("relu", 0, "infra 2")])
    assert ended.result.card.status is Status.CORRECT
    assert ended.attempts == 3
    assert [part for part, *_ in two_parts.orders] == [
        GradePart.BEGIN,
        GradePart.FINISH,
        GradePart.FINISH,
        GradePart.FINISH,
    ]


def test_a_gpus_worker_gets_ready_while_the_first_submission_is_built(two_parts, monkeypatch):
    """No build ends before the worker is ready; and a worker without a grade so far is not sent home."""
    ready, begin, asked = threading.Event(), TwoParts.grade, []

    def prepare(self, request):
        asked.append((self.slot.part, request.options.gpu))
        ready.set()
        return True

    def grade(self, order, on_stage):
        if order.part is GradePart.BEGIN:
            assert ready.wait(120)
            time.sleep(0.2)
        return begin(self, order, on_stage)

    monkeypatch.setattr(TwoParts, "prepare", prepare)
    monkeypatch.setattr(TwoParts, "grade", grade)
    monkeypatch.setattr(worker_pool, "_IDLE_S", 0.01)
    (ended,) = run([task("relu", 0)], builders=1)
    assert ended.result.card.status is Status.CORRECT
    assert asked == [(GradePart.FINISH, "a")]
    assert [each.slot.part for each in two_parts.started] in (
        [GradePart.FINISH, GradePart.BEGIN],
        [GradePart.BEGIN, GradePart.FINISH],
    )


def test_a_worker_that_dies_before_its_first_order_is_replaced(two_parts, monkeypatch):
    monkeypatch.setattr(TwoParts, "prepare", lambda *_: False)
    (ended,) = run([task("relu", 0)], builders=1)
    assert (ended.result.card.status, ended.attempts) == (Status.CORRECT, 1)
    finishing = [each for each in two_parts.started if each.slot.part is GradePart.FINISH]
    assert [each.closed for each in finishing] == [True, True]  # The second at the end of the batch.


def test_a_gpu_that_is_lost_before_the_first_order_is_lost_for_the_first_task_alone(two_parts):
    """A machine without a place for the worker of a GPU: what fails to build needs none."""

    def hire(slot, log):
        if slot.part is GradePart.FINISH:
            raise NoWorker("no machine has a free slot")
        return two_parts(slot, log)

    (ended,) = run([task("relu", 0, "uncompiled")], builders=1, hire=hire)
    assert ended.result.card.status is Status.BUILD_ERROR


class Starting(TwoParts):
    """Builds; the first stage of a worker's first grade comes when `may_start` is set, the next with `may_go_on`."""

    may_start: threading.Event
    may_go_on: threading.Event
    first: set

    def grade(self, order, on_stage):
        if order.part is GradePart.FINISH:
            return super().grade(order, on_stage)
        if self not in self.first:
            with self.lock:
                self.first.add(self)
            assert self.may_start.wait(120)
        else:
            assert self.may_go_on.wait(120)
        on_stage(StageEntered("read", ""))
        return Built(BEGUN)


@pytest.fixture
def starting(two_parts, monkeypatch):
    monkeypatch.setattr(Starting, "may_start", threading.Event(), raising=False)
    monkeypatch.setattr(Starting, "may_go_on", threading.Event(), raising=False)
    monkeypatch.setattr(Starting, "first", set(), raising=False)
    monkeypatch.setattr(worker_pool, "LocalWorker", Starting)
    return Starting


@contextlib.contextmanager
def running(tasks, **options):
    """Run tasks in a thread; the value has the ended tasks after the exit."""
    ended = []
    thread = threading.Thread(target=lambda: ended.extend(run(tasks, **options)))
    thread.start()
    yield ended
    thread.join(60)


def builders_of(workers):
    return [each for each in workers.started if each.slot.part is GradePart.BEGIN]


def test_a_quarter_of_the_workers_starts_at_a_time(starting):
    tasks = [task("relu", n) for n in range(24)]
    with running(tasks, gpus=("a", "b", "c", "d"), builders=12) as ended:
        soon(lambda: len(starting.first) == 3 and len(starting.started) >= 7)
        time.sleep(0.2)
        assert len(builders_of(starting)) == 3  # a quarter of twelve, and the workers of the GPUs beside them
        assert len(starting.started) == 7
        starting.may_start.set()
        soon(lambda: len(builders_of(starting)) == 12)
        starting.may_go_on.set()
    assert len(ended) == 24


def test_a_slot_that_waits_for_its_workers_start_holds_no_task(two_parts, monkeypatch):
    """The GPU waited for the first problem's builds, which slots without a worker had taken."""
    begins, starts = threading.Event(), threading.Event()

    class SecondStartsLate(TwoParts):
        def grade(self, order, on_stage):
            if order.part is GradePart.BEGIN:
                if self is not builders_of(two_parts)[0]:
                    begins.set()
                    assert starts.wait(60)
                time.sleep(0.2)  # A slot that takes a task before its turn has the time to.
                on_stage(StageEntered("read", ""))
                assert begins.wait(60)
            return super().grade(order, on_stage)

    monkeypatch.setattr(worker_pool, "_LEAST_STARTING", 1)
    monkeypatch.setattr(worker_pool, "LocalWorker", SecondStartsLate)
    with running([task("relu", n) for n in range(9)], builders=3) as ended:
        soon(lambda: sum(part is GradePart.BEGIN for part, *_ in two_parts.orders) == 8)
        assert len(builders_of(two_parts)) == 2
        starts.set()
    assert len(ended) == 9


def test_a_task_without_a_stage_ends_its_slots_turn(two_parts, monkeypatch):
    """Unreadable texts have none. All other workers would wait."""
    others = threading.Event()

    class NoStage(TwoParts):
        def grade(self, order, on_stage):
            if order.part is GradePart.BEGIN and self is not builders_of(two_parts)[0]:
                others.set()
            elif order.part is GradePart.BEGIN and any(part is GradePart.BEGIN for part, *_ in two_parts.orders):
                assert others.wait(30)
            return super().grade(order, on_stage)

    monkeypatch.setattr(worker_pool, "_LEAST_STARTING", 1)
    monkeypatch.setattr(worker_pool, "_START_S", 60.0)
    monkeypatch.setattr(worker_pool, "LocalWorker", NoStage)
    assert len(run([task("relu", n) for n in range(9)], builders=3)) == 9


def test_slots_that_were_idle_for_long_start_a_quarter_at_a_time(starting, monkeypatch):
    """All waits for a turn have ended before the first task comes."""
    monkeypatch.setattr(worker_pool, "_START_S", 0.3)
    coming = threading.Event()

    def tasks():
        assert coming.wait(60)
        yield from (task("relu", n) for n in range(12))

    with running(tasks(), builders=12) as ended:
        time.sleep(1.0)
        monkeypatch.setattr(worker_pool, "_START_S", 60.0)
        coming.set()
        soon(lambda: len(starting.first) == 3)
        time.sleep(0.2)
        assert len(builders_of(starting)) == 3
        starting.may_start.set()
        starting.may_go_on.set()
    assert len(ended) == 12


def test_a_worker_that_never_starts_keeps_the_others_waiting_for_a_time_only(starting, monkeypatch):
    monkeypatch.setattr(worker_pool, "_START_S", 0.05)
    with running([task("relu", n) for n in range(7)], builders=7) as ended:
        soon(lambda: len(starting.first) == 7)
        starting.may_start.set()
        starting.may_go_on.set()
    assert len(ended) == 7


class Dying(Starting):
    """Dies at the start until `may_start` is set."""

    def grade(self, order, on_stage):
        if order.part is GradePart.BEGIN and not self.may_start.is_set():
            return NotGraded("the process that made the grade died", again=True)
        return super().grade(order, on_stage)


def test_workers_that_die_at_the_start_let_the_others_start(starting, monkeypatch):
    monkeypatch.setattr(worker_pool, "LocalWorker", Dying)
    monkeypatch.setattr(worker_pool, "BACKOFF_S", (0.01, 0.01))
    monkeypatch.setattr(worker_pool, "_START_S", 600)
    ended = run([task("relu", n) for n in range(12)], builders=8)
    assert [each.attempts for each in ended] == [3] * 12


def test_an_interrupt_ends_slots_that_wait_for_the_start_of_others(starting, monkeypatch):
    class Interrupted(Starting):
        def interrupt(self):
            super().interrupt()
            self.may_start.set()

    monkeypatch.setattr(worker_pool, "LocalWorker", Interrupted)
    monkeypatch.setattr(worker_pool, "_JOIN_S", 60)
    monkeypatch.setattr(worker_pool, "_START_S", 600)
    coming = iter([task("relu", n) for n in range(20)])
    slots = [Slot(gpu="a", part=GradePart.FINISH), *[Slot(gpu="a", part=GradePart.BEGIN)] * 8]
    with WorkerPool(slots, GradeOptions(DeviceKind.CUDA), TaskStream(lambda: next(coming, None))) as pool:
        soon(lambda: len(starting.first) == 2)
    assert not any(thread.is_alive() for thread in pool._threads)
    assert len(builders_of(starting)) == 2


def test_an_interrupt_while_slots_start_ends_the_workers_that_have_started(worker, monkeypatch):
    monkeypatch.setattr(worker_pool, "_JOIN_S", 60)
    coming = iter([task("relu", 0, "hanging")])
    slots = [Slot(part=GradePart.ALL)] * 3
    pool = WorkerPool(slots, GradeOptions(DeviceKind.CPU), TaskStream(lambda: next(coming, None)))

    def interrupted():
        soon(lambda: worker.graded["# hanging"] == 1)
        raise KeyboardInterrupt

    monkeypatch.setattr(pool._threads[1], "start", interrupted)
    with pytest.raises(KeyboardInterrupt), pool:
        pass
    assert [each.interrupted.is_set() for each in worker.started] == [True]
    assert not any(thread.is_alive() for thread in pool._threads)


def test_an_idle_gpu_is_released_after_a_grade(two_parts, monkeypatch):
    monkeypatch.setattr(worker_pool, "_IDLE_S", 0.01)

    def slowly():
        yield task("relu", 0)
        soon(lambda: any(each.closed for each in two_parts.started))
        yield task("relu", 1)

    assert len(run(slowly(), builders=1)) == 2
    assert sum(each.slot.part is GradePart.FINISH for each in two_parts.started) == 2


def test_fail_fast_tells_a_result_while_another_slot_waits_for_the_next_line(worker, monkeypatch):
    asked, seen, graded = threading.Event(), threading.Event(), worker.grade

    def lines():
        yield task("relu", 0, "wrong")
        asked.set()
        assert seen.wait(120)

    def grade(self, order, on_stage):
        assert asked.wait(60)
        return graded(self, order, on_stage)

    monkeypatch.setattr(worker, "grade", grade)
    coming, slots = lines(), [Slot(), Slot()]
    with WorkerPool(
        slots, GradeOptions(DeviceKind.EMULATED), TaskStream(lambda: next(coming, None)), fail_fast=True
    ) as working:
        while not isinstance(working.events.get(timeout=60), TaskEnded):
            pass
        seen.set()


def waiting(problem, number):
    return BuiltTask(task(problem, number), BEGUN, 1, 0.0)


def test_problems_of_one_kind_follow_each_other():
    ready = GpuQueue(builders=1, room=100)
    for number, problem in enumerate(["relu", "gelu", "relu", "gelu", "gelu", "add", "relu"]):
        ready.put(waiting(problem, number))
    ready.builder_left()
    taken, last = [], None
    while not ready.over:
        one = ready.take(last, 1.0)
        last = one.task.problem.sha256
        taken.append((one.task.problem.name, one.task.name))
        ready.done()
    assert [problem for problem, _ in taken] == ["relu"] * 3 + ["gelu"] * 3 + ["add"]
    assert [name for problem, name in taken if problem == "gelu"] == ["s1", "s3", "s4"]


def test_two_gpus_set_up_two_problems_before_they_share_one():
    ready = GpuQueue(builders=1, room=100)
    for number, problem in enumerate(["relu", "relu", "relu", "gelu", "gelu", "add", "relu", "relu", "relu"]):
        ready.put(waiting(problem, number))
    first, second = ready.take(None, 1.0), ready.take(None, 1.0)
    assert (first.task.problem.name, second.task.problem.name) == ("relu", "relu")  # 2.5 for each of two, against 2
    third = ready.take(None, 1.0)
    assert third.task.problem.name == "gelu"  # 2, against 4/3
    assert ready.take(third.task.problem.sha256, 1.0).task.problem.name == "gelu"
    assert ready.take(third.task.problem.sha256, 1.0).task.problem.name == "relu"
    for number in range(2):
        ready.put(waiting("gelu", number))
    assert ready.take(None, 1.0).task.problem.name == "gelu"  # its slot has left: two for one slot again


def test_a_slot_takes_a_problem_without_further_builds_first():
    ready = GpuQueue(builders=1, room=100)
    for number, problem in enumerate(["relu", "relu", "gelu"]):
        ready.put(waiting(problem, number))
    with ready.coming(waiting("relu", 9).task.problem.sha256):
        assert ready.take(None, 1.0).task.problem.name == "gelu"
    assert ready.take(None, 1.0).task.problem.name == "relu"


def test_a_slot_waits_a_moment_for_a_build_of_its_problem():
    ready = GpuQueue(builders=1, room=2)
    relu = waiting("relu", 1)
    ready.put(waiting("gelu", 0))
    taken = []
    with ready.coming(relu.task.problem.sha256):
        slot = threading.Thread(target=lambda: taken.append(ready.take(relu.task.problem.sha256, 60.0)), daemon=True)
        slot.start()
        slot.join(0.1)
        assert taken == []
        ready.put(relu)
        slot.join(60)
    assert taken == [relu]


@pytest.mark.parametrize("end", ["patience", "failed build", "no room"])
def test_a_slot_goes_on_to_another_problem_where_no_build_comes(monkeypatch, end):
    monkeypatch.setattr(queues, "_PATIENCE_S", 0.05 if end == "patience" else 600.0)
    ready = GpuQueue(builders=1, room=1 if end == "no room" else 100)
    relu = waiting("relu", 1).task.problem.sha256
    ready.put(waiting("gelu", 0))
    taken = []
    slot = threading.Thread(target=lambda: taken.append(ready.take(relu, 600.0)), daemon=True)
    with ready.coming(relu):
        slot.start()
        slot.join(0.1 if end == "failed build" else 60)
        assert bool(taken) is (end != "failed build")
    slot.join(60)
    assert [one.task.problem.name for one in taken] == ["gelu"]


def test_builders_wait_for_room_and_nobody_waits_for_ever():
    ready = GpuQueue(builders=1, room=1)
    ready.put(waiting("relu", 0))
    second = threading.Thread(target=ready.put, args=(waiting("relu", 1),), daemon=True)
    second.start()
    second.join(0.1)
    assert second.is_alive()
    assert ready.take(None, 1.0).task.name == "s0"
    second.join(60)
    assert not second.is_alive()
    assert ready.take(None, 1.0).task.name == "s1"
    assert ready.take(None, 0.0) is None
    assert not ready.over
    ready.close()
    assert ready.over
    assert ready.take(None, 60.0) is None


def test_an_outcome_goes_from_one_worker_to_another_unchanged():
    card = cards.uncompiled_card()
    outcome = Outcome(build=card.build, findings=[finding(Code.NO_LAUNCH, "none")], output=card.output)
    begun = Begun(outcome=outcome, lap=BEGUN.lap)
    sent = WorkerOrder(
        problem=PROBLEMS.find("relu"),
        submission=task("relu", 1).submission,
        unread=None,
        options=GradeOptions(DeviceKind.CUDA, problems=Path("mine"), signing_key=Path("key")).for_worker("a"),
        part=GradePart.FINISH,
        begun=begun,
    )
    assert sent.options == GradeOptions(DeviceKind.CUDA, gpu="a")  # Paths are this machine's.
    assert msgspec.json.decode(msgspec.json.encode(sent), type=WorkerOrder) == sent
    model = GpuModel(0, "a", "H200", (9, 0), 1 << 37, "580")
    assert msgspec.structs.replace(sent, facts=model).on_gpu("b") == msgspec.structs.replace(
        sent, options=GradeOptions(DeviceKind.CUDA, gpu="b")
    )
