"""Who gets which worker, and what becomes of a worker that fails."""

import contextlib
import threading

import pytest

from evaluator.batch.workers.messages import Graded, GradePart, NotGraded
from evaluator.batch.workers.worker_handle import Slot
from evaluator.errors import InfraError
from evaluator.records import DeviceKind, Status
from evaluator.serve.call import ClientCall
from evaluator.serve.crew import Crew, GradeAbandoned
from evaluator.serve.grades import Grades
from evaluator.serve.slot_worker import SlotWorker
from tests.serve.conftest import order, soon


def silent(*_):
    return None


def place(worker, slot=None):
    return SlotWorker(DeviceKind.EMULATED, slot or Slot(), worker)


def taken(crew, wanted, part=GradePart.ALL):
    return crew.worker_for(part, wanted, ClientCall(), silent)


def used(crew, wanted):
    with taken(crew, wanted) as found:
        found.grade(wanted, ClientCall(), silent)
    return found


def test_a_problem_returns_to_the_worker_that_keeps_it(worker):
    crew = Crew([place(worker), place(worker)])
    relu, softmax = order("# right"), order("# right", "softmax")
    with taken(crew, relu) as first, taken(crew, softmax) as second:
        first.grade(relu, ClientCall(), silent)
        second.grade(softmax, ClientCall(), silent)
    assert first is not second
    assert [used(crew, softmax), used(crew, relu), used(crew, relu), used(crew, softmax)] == [
        *(second, first, first, second)
    ]
    assert len(worker.started) == 2


def test_another_option_is_another_context(worker):
    crew = Crew([place(worker), place(worker)])
    crew.prepare_spares()
    first = used(crew, order("# right"))
    second = used(crew, order("# right", timeout_s=3.0))
    assert first is not second


def test_a_ready_worker_goes_before_a_new_one(worker):
    crew = Crew([place(worker), place(worker)])
    assert used(crew, order("# right")) is used(crew, order("# right", "softmax"))
    assert len(worker.started) == 1


def test_who_waits_is_told_and_gets_the_next_free_place(worker):
    crew = Crew([place(worker)])
    told, got = threading.Event(), threading.Event()

    def wait():
        with crew.worker_for(GradePart.ALL, order("# right"), ClientCall(), told.set):
            got.set()

    with taken(crew, order("# right")):
        thread = threading.Thread(target=wait)
        thread.start()
        assert told.wait(60)
        assert not got.is_set()
    assert got.wait(60)
    thread.join(60)


def test_a_free_place_prefers_its_own_problem(worker):
    crew = Crew([place(worker)])
    relu, softmax = order("# right"), order("# right", "softmax")
    came = []

    def wait(wanted, name):
        with taken(crew, wanted):
            came.append(name)

    with taken(crew, relu) as found:
        found.grade(relu, ClientCall(), silent)
        threads = [threading.Thread(target=wait, args=each) for each in ((softmax, "softmax"), (relu, "relu"))]
        for number, thread in enumerate(threads, 1):
            thread.start()
            soon(lambda number=number: len(crew._waiting) == number)
    for thread in threads:
        thread.join(60)
    assert came == ["relu", "softmax"]


def test_an_abandoned_grade_waits_no_longer(worker):
    crew, call = Crew([place(worker)]), ClientCall()
    with taken(crew, order("# right")):
        call.abandon()
        with pytest.raises(GradeAbandoned), crew.worker_for(GradePart.ALL, order("# right"), call, silent):
            pass
    assert crew._waiting == []


def test_a_gpu_that_was_asked_for_finishes_the_grade(worker):
    slots = [
        Slot(gpu="GPU-a", part=GradePart.FINISH),
        Slot(gpu="GPU-b", part=GradePart.FINISH),
        Slot(part=GradePart.BEGIN),
    ]
    crew = Crew([SlotWorker(DeviceKind.CUDA, slot, worker) for slot in slots])
    assert crew.parts == (GradePart.BEGIN, GradePart.FINISH)
    wanted = order("# right", device=DeviceKind.CUDA, gpu="GPU-b")
    with taken(crew, wanted, GradePart.FINISH) as found:
        assert found.slot.gpu == "GPU-b"
    crew.prepare_spares()
    assert all(each.is_running for each in crew.workers)


def test_idle_workers_end_and_busy_ones_stay(worker):
    crew = Crew([place(worker), place(worker)])
    crew.prepare_spares()
    with taken(crew, order("# right")) as busy:
        crew.release_idle(-1.0)
        assert [each.is_running for each in crew.workers] == [each is busy for each in crew.workers]
    crew.release_idle(3600.0)
    assert busy.is_running
    crew.release_idle(-1.0)
    assert not any(each.is_running for each in crew.workers)
    assert all(each.closed for each in worker.started)


@pytest.mark.parametrize("before", ["graded", "prepared"])
def test_a_failure_of_a_kept_worker_is_tried_again_in_a_new_one(worker, before):
    own = place(worker)
    if before == "graded":
        own.grade(order("# right"), ClientCall(), silent)
    else:
        own.prepare()
    result = own.grade(order("# infra 1"), ClientCall(), silent)
    assert isinstance(result, Graded)
    assert result.card.status is Status.CORRECT
    assert [each.closed for each in worker.started] == [True, False]


@pytest.mark.parametrize("source", ["# infra 9", "# lost 9"])
def test_a_failure_of_a_new_worker_is_the_result(worker, source):
    own = place(worker)
    result = own.grade(order(source), ClientCall(), silent)
    failed = result.card.status is Status.INFRA_ERROR if isinstance(result, Graded) else result.again
    assert failed
    assert worker.graded == {source: 1}
    assert not own.is_running


def test_an_abandoned_grade_ends_its_worker_at_once(worker):
    own, call, results = place(worker), ClientCall(), []
    thread = threading.Thread(target=lambda: results.append(own.grade(order("# hanging"), call, silent)))
    thread.start()
    soon(lambda: worker.graded["# hanging"])
    call.abandon()
    thread.join(60)
    assert isinstance(results[0], NotGraded)
    assert worker.graded == {"# hanging": 1}
    assert not own.is_running


def test_a_worker_that_cannot_start_is_a_result():
    def hire(*_):
        raise OSError(12, "Cannot allocate memory")

    result = place(hire).grade(order("# right"), ClientCall(), silent)
    assert result == NotGraded("no worker process could start: Cannot allocate memory", again=True)


def test_a_device_without_places_is_a_result_with_its_remedy(worker, monkeypatch):
    grades = Grades(1, worker)

    def no_crew(_):
        raise InfraError("there is no GPU", hint="grade on emulated")

    monkeypatch.setattr(grades, "crew", no_crew)
    result = grades.make(order("# right"), ClientCall(), silent)
    assert result == NotGraded("there is no GPU", again=False, hint="grade on emulated")


def test_the_end_ends_grades_and_workers(worker):
    grades, results, call = Grades(1, worker), [], ClientCall()
    thread = threading.Thread(target=lambda: results.append(grades.make(order("# hanging"), call, silent)))
    thread.start()
    soon(lambda: worker.graded["# hanging"])
    call.abandon()
    grades.close()
    thread.join(60)
    assert [isinstance(each, NotGraded) for each in results] == [True]
    assert all(each.closed for each in worker.started)
    late = grades.make(order("# right"), ClientCall(), silent)
    assert late == NotGraded("the ready judge ended before the grade", again=True)


def test_a_worker_that_is_starting_at_the_end_is_ended_too(worker, monkeypatch):
    """The end must not wait until the worker is ready, which takes as long as the import of PyTorch."""
    starting, ending, ended, interrupt = threading.Event(), threading.Event(), [], SlotWorker.interrupt

    class Starting(worker):
        def __init__(self, *given):
            starting.set()
            assert ending.wait(60)
            super().__init__(*given)

        def prepare(self, _):
            ended.append(self.interrupted.wait(15))
            return False

    def interrupt_nobody_at_first(self):
        interrupt(self)
        ending.set()

    monkeypatch.setattr(SlotWorker, "interrupt", interrupt_nobody_at_first)
    crew = Crew([place(Starting)])
    thread = threading.Thread(target=crew.prepare_spares)
    thread.start()
    assert starting.wait(60)
    crew.close()
    thread.join(60)
    assert ended == [True]


def test_one_job_on_cpu_has_all_cores(worker):
    assert [each.slot for each in Grades(4, worker).crew(DeviceKind.CPU).workers] == [Slot()]
    with contextlib.closing(Grades(3, worker)) as grades:
        assert grades.at_once(DeviceKind.EMULATED) == 3
