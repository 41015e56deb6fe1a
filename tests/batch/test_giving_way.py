"""A judge that leaves for another grade's sake: the worker goes on with a new judge, and no order is lost."""

import os
import threading
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from evaluator.batch.workers import worker
from evaluator.batch.workers.messages import GradePart, NotGraded, WorkerOrder, receive_reply, receive_request, send
from evaluator.catalog import find_problem
from evaluator.errors import ProblemError
from evaluator.grade_options import GradeOptions
from evaluator.records import DeviceKind
from tests.batch.fakes import text_submission


def order():
    return WorkerOrder(find_problem("relu"), text_submission(""), None, GradeOptions(DeviceKind.CPU))


def test_an_error_of_a_problem_is_told_with_its_remedy(monkeypatch):
    def broken(*_):
        raise ProblemError("p: forward failed", hint="mend its forward")

    monkeypatch.setattr(worker.pipeline, "grade", broken)
    monkeypatch.setattr(worker.pipeline, "begin", broken)
    result = worker._result(order(), pool(in_the_way=False), None, 0)
    assert result == NotGraded("p: forward failed", again=False, hint="mend its forward")


def pool(*, in_the_way, refill=lambda: None, must_end=False):
    return SimpleNamespace(is_in_the_way=in_the_way, refill=refill, must_end=lambda _: must_end)


def test_a_problem_that_needs_a_new_judge_is_not_graded_in_the_old_one(monkeypatch):
    monkeypatch.setattr(worker.pipeline, "grade", None)
    with pytest.raises(worker._GaveWay):
        worker._result(order(), pool(in_the_way=False, must_end=True), None, 0)


def test_on_a_gpu_problems_in_place_share_a_judge_and_texts_do_not(tmp_path):
    relu, softmax = (replace(order(), problem=find_problem(name)) for name in ("relu", "softmax"))
    assert relu.streak != softmax.streak
    on_gpu = [replace(each, options=GradeOptions(DeviceKind.CUDA)) for each in (relu, softmax)]
    assert len({each.streak for each in on_gpu}) == 1
    assert len({replace(each, part=GradePart.BEGIN).streak for each in on_gpu}) == 2
    texts = [replace(each, problem=replace(each.problem, path=f"<problem {each.problem.name}>")) for each in on_gpu]
    assert len({each.streak for each in [*texts, on_gpu[0]]}) == 3


def next_order(orders, context_pool):
    return worker._next_order(orders, context_pool, worker._GpuFairness(context_pool))


def test_a_judge_that_is_never_idle_leaves_after_others_have_waited_long_enough(monkeypatch):
    monkeypatch.setattr(worker, "_FAIR_S", 10.0)
    looks_s = iter([0.0, 9.0, 11.0, 12.0, 21.0, 22.1])
    monkeypatch.setattr(worker, "time", SimpleNamespace(monotonic=lambda: next(looks_s)))
    waited_for = pool(in_the_way=True)
    patience = worker._GpuFairness(waited_for)
    for in_the_way in (True, True, False, True, True):  # The first grade found another place; a later one waits anew.
        waited_for.is_in_the_way = in_the_way
        patience.look()
    with pytest.raises(worker._GaveWay):
        patience.look()


def test_an_idle_judge_leaves_only_where_it_is_in_the_way(monkeypatch):
    monkeypatch.setattr(worker, "_LOOK_ROUND_S", 0.01)
    orders, its_orders = os.pipe()
    with pytest.raises(worker._GaveWay):
        next_order(orders, pool(in_the_way=True))
    threading.Timer(0.2, send, (its_orders, order())).start()
    assert next_order(orders, pool(in_the_way=False)) == order()


def test_an_idle_judge_starts_the_next_processes_and_a_busy_one_does_not():
    orders, its_orders = os.pipe()
    started = []

    def refill():
        started.append(True)
        send(its_orders, order())

    assert next_order(orders, pool(in_the_way=True, refill=refill)) == order()
    send(its_orders, order())
    assert next_order(orders, pool(in_the_way=True, refill=refill)) == order()
    assert started == [True]
    send(its_orders, order())
    assert next_order(orders, pool(in_the_way=True)) == order()
    os.close(its_orders)
    assert next_order(orders, pool(in_the_way=True)) is None
    os.close(orders)


def test_an_order_that_meets_a_leaving_judge_is_made_by_the_next(monkeypatch):
    """Each judge makes one order, then leaves; every second order arrives while it is leaving."""

    def judge(orders, done, replies, _parent, _fork_server):
        os.close(its_source)  # which a batch has in another process
        assert isinstance(receive_request(orders), WorkerOrder)
        os.write(done, b".")  # first: the test ends the orders after the last reply
        send(replies, NotGraded(reason=str(os.getpid()), again=False))
        receive_request(orders)  # lost with this judge
        os.write(done, b"-")
        os._exit(0)

    source, its_source = os.pipe()
    replies, its_replies = os.pipe()
    monkeypatch.setattr(worker, "_judge", judge)
    monkeypatch.setattr(worker, "_ORDERS", source)
    results = []
    thread = threading.Thread(target=lambda: results.append(worker._serve_all(order(), its_replies, None)))
    thread.start()
    pids = {receive_reply(replies, 120).reason}
    for _ in range(3):
        send(its_source, order())
        pids.add(receive_reply(replies, 120).reason)
    os.close(its_source)
    thread.join(120)
    assert results == [0]
    assert len(pids) == 4
    for descriptor in (source, replies, its_replies):
        os.close(descriptor)


def test_a_judge_that_dies_ends_the_worker(monkeypatch):
    source, its_source = os.pipe()
    monkeypatch.setattr(worker, "_judge", lambda *_: os._exit(1))
    monkeypatch.setattr(worker, "_ORDERS", source)
    assert worker._serve_all(order(), 2, None) == 1
    os.close(its_source)
    os.close(source)
