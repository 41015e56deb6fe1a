"""Which slot gets which task of a queue, when slots start and end workers, and what ends a task in progress."""

import threading
import time

import pytest

from evaluator.batch.runs.tasks import Task
from evaluator.batch.workers import queues
from evaluator.batch.workers.messages import Built, GradeFinished, GradePart, NotGraded
from evaluator.batch.workers.queues import Errand, SlotState, TaskQueue
from evaluator.batch.workers.task_grader import TaskGrader
from evaluator.batch.workers.worker_handle import Slot
from evaluator.catalog import find_problem
from evaluator.grade_options import GradeOptions
from evaluator.records import DeviceKind, Status
from tests import cards
from tests.batch.fakes import FakeWorker, soon, text_submission
from tests.batch.test_parts import BEGUN


def task(source="# right", problem="relu", **options):
    submission = text_submission(source)
    own = GradeOptions(**{"device": DeviceKind.EMULATED, **options}) if options else None
    return Task(find_problem(problem), "mine", submission, options=own)


def keeping(context=None, used_s=0.0):
    """A slot whose worker keeps the context of a task."""
    state = SlotState(Slot())
    state.started()
    state.context, state.used_s = context and context.context, used_s
    return state


class Taking:
    """A slot that waits for a task, in a thread."""

    def __init__(self, queue, state):
        self.state, self.got = state, []
        self.thread = threading.Thread(target=lambda: self.got.append(queue.take(state)), daemon=True)
        self.thread.start()
        soon(lambda: state in queue._idle or self.got)

    def result(self):
        self.thread.join(60)
        return self.got[0]


def test_a_task_goes_to_the_slot_that_keeps_its_problem_and_options():
    queue, relu, softmax = TaskQueue(), task(), task(problem="softmax")
    other, kept = Taking(queue, keeping(softmax)), Taking(queue, keeping(relu, used_s=1e9))
    assert queue.put(relu)
    assert kept.result() is relu
    again = Taking(queue, keeping(task(timeout_s=3.0), used_s=1e9))
    assert queue.put(last := task(problem="softmax"))
    assert other.result() is last
    queue.close()
    assert again.result() is None


def test_a_slot_with_a_worker_goes_before_one_without_and_an_empty_one_before_a_kept_one():
    queue = TaskQueue()
    slots = [SlotState(Slot()), keeping(task(problem="softmax")), keeping(), keeping(used_s=time.monotonic() + 9)]
    waiting = [Taking(queue, state) for state in slots]
    order = []
    for _ in slots:
        queue.put(task())
        soon(lambda: any(each.got for each in waiting if each.state not in order))
        order.append(next(each.state for each in waiting if each.got and each.state not in order))
    assert order == [slots[2], slots[3], slots[1], slots[0]]


def test_a_free_slot_prefers_its_own_problem_but_not_for_ever():
    queue, softmax = TaskQueue(), task(problem="softmax")
    assert not queue.put(softmax)
    state, taken = keeping(task()), []
    for _ in range(queues._MOST_OVERTAKING + 2):
        queue.put(task())
        taken.append(queue.take(state))
        state.task = None
    assert [each.problem.name for each in taken] == ["relu"] * queues._MOST_OVERTAKING + ["softmax", "relu"]


def test_tasks_keep_their_order_and_a_returned_one_is_the_first():
    queue, tasks = TaskQueue(), [task(f"# right {n}") for n in range(3)]
    for each in tasks:
        queue.put(each)
    queue.put_back(back := task("# right back"))
    assert queue.remove(tasks[1])
    assert not queue.remove(tasks[1])
    assert [queue.take(SlotState(Slot())) for _ in range(3)] == [back, tasks[0], tasks[2]]
    assert not queue._of_context


def test_slots_start_workers_one_after_another_until_enough_have_one():
    queue = TaskQueue(spares=2)
    states = [SlotState(Slot()) for _ in range(4)]
    waiting = [Taking(queue, state) for state in states]
    queue.prepare()
    for _ in range(2):
        soon(lambda: any(each.got for each in waiting))
        (slot,) = [each for each in waiting if each.got]
        assert slot.result() is Errand.PREPARE
        waiting.remove(slot)
        slot.state.started()
        Taking(queue, slot.state)
    soon(lambda: not queue._needs_spares)
    assert not any(each.got for each in waiting)
    queue.close()


def test_a_worker_that_does_not_start_is_not_tried_again_before_the_next_grade():
    queue, state = TaskQueue(spares=2), SlotState(Slot())
    queue.prepare()
    assert queue.take(state) is Errand.PREPARE
    again = Taking(queue, state)
    assert not queue._needs_spares
    queue.prepare()
    assert again.result() is Errand.PREPARE


@pytest.fixture
def graders(worker):
    made = []

    def start(jobs=1, **named):
        slots = named.pop("slots", [Slot()] * jobs)
        made.append(TaskGrader(slots, GradeOptions(DeviceKind.EMULATED), hire=worker, **named))
        return made[-1]

    yield start
    for each in made:
        each.close()


def test_a_waiting_task_is_told_and_may_be_cancelled(graders, worker):
    grader, told = graders(), []
    first = grader.submit(hanging := task("# hanging"))
    soon(lambda: worker.graded["# hanging"])
    second = grader.submit(waiting := task(), told.append)
    assert [stage.name for stage in told] == ["wait"]
    grader.cancel(waiting)
    assert second.cancelled()
    grader.cancel(hanging)
    assert isinstance(first.result(60).result, NotGraded)
    assert worker.started[0].closed
    assert grader.submit(task()).result(60).result.card.status is Status.CORRECT
    assert worker.graded["# hanging"] == 1
    assert not grader.pool._cancelled
    grader.cancel(hanging)  # It has ended.
    assert not grader.pool._cancelled


def test_a_gpu_that_was_asked_for_finishes_the_grade(worker, monkeypatch):
    finished = []

    def grade(self, order, _on_stage):
        if order.part is GradePart.BEGIN:
            return Built(begun=BEGUN)
        finished.append((self.slot.gpu, order.options.gpu))
        return GradeFinished(cards.card())

    monkeypatch.setattr(worker, "grade", grade)
    slots = [
        Slot(gpu="GPU-a", part=GradePart.FINISH),
        Slot(gpu="GPU-b", part=GradePart.FINISH),
        Slot(gpu="GPU-a", part=GradePart.BEGIN),
    ]
    grader = TaskGrader(slots, GradeOptions(DeviceKind.CUDA), hire=worker)
    wanted = [task(device=DeviceKind.CUDA, gpu="GPU-b") for _ in range(5)]
    for future in [grader.submit(each) for each in wanted]:
        assert future.result(60).result.card.status is Status.CORRECT
    grader.close()
    assert finished == [("GPU-b", "GPU-b")] * 5


def test_an_idle_worker_of_a_grader_ends_and_the_next_task_has_a_new_one(graders, worker):
    grader = graders(idle_s=0.01)
    grader.submit(task()).result(60)
    soon(lambda: worker.started[0].closed)
    assert grader.submit(task()).result(60).result.card.status is Status.CORRECT
    assert len(worker.started) == 2


def test_spares_start_after_a_request_alone(graders, worker):
    grader = graders(jobs=4, spares=2)
    grader.submit(task()).result(60)
    assert len(worker.started) == 1
    grader.prepare()
    soon(lambda: sum(state.has_worker for state in grader.pool.states) == 2)
    assert len(worker.started) == 2
    assert len(FakeWorker.started) == 2


def test_the_end_cancels_and_ends_all(graders, worker):
    grader = graders()
    futures = [grader.submit(task("# hanging")), grader.submit(task())]
    soon(lambda: worker.graded["# hanging"])
    grader.close()
    assert all(future.cancelled() for future in futures)
    assert worker.started[0].interrupted.is_set()
    assert grader.submit(task()).cancelled()


def test_a_worker_that_is_starting_at_the_end_is_ended_too(graders, worker, monkeypatch):
    """The end must not wait until the worker is ready, which takes as long as the import of PyTorch."""
    starting, ending, made = threading.Event(), threading.Event(), worker.__init__

    def start(self, *given):
        starting.set()
        assert ending.wait(60)
        made(self, *given)

    monkeypatch.setattr(worker, "__init__", start)
    grader = graders(spares=1)
    grader.prepare()
    assert starting.wait(60)
    grader.close()
    ending.set()
    soon(lambda: worker.started and worker.started[0].closed)
