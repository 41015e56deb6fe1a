"""Windows on the host: which outputs the judge has watched, and what it sends for calls that may never be released."""

from types import SimpleNamespace

import pytest
import torch
from msgspec.structs import replace

from evaluator.deadline import Deadline, Work
from evaluator.devices.handshake import Observed
from evaluator.devices.memory import HostRegion
from evaluator.findings import Code, finding
from evaluator.judge.clock.host_windows import HostWindowClock, _slots, is_watched
from evaluator.judge.runners.runner_client import RunnerClient
from evaluator.protocol.frames import Call, Done, Items, Queued, Scalar, TensorView
from evaluator.records import Fault, Status


def answer(offset_bytes, elements):
    view = TensorView(
        dtype="float32", shape=(elements,), strides=(1,), offset_bytes=offset_bytes, device="cpu", storage=None
    )
    return Done(index=0, outputs=view)


def seen(words, blocks):
    nothing = torch.empty(0, dtype=torch.int64)
    places = torch.tensor(words, dtype=torch.int64)
    return Observed(nothing, nothing.int(), places, torch.zeros(len(words), dtype=torch.int32), blocks, 0.01)


BLOCK = [(1024, 4096)]


@pytest.mark.parametrize(
    ("done", "observed", "watched"),
    [
        (answer(1024, 768), seen(range(256, 264), BLOCK), True),
        (answer(1024, 768), seen(range(256, 263), BLOCK), False),
        (answer(1024, 2), seen([256, 257], BLOCK), True),
        (answer(1024, 2), seen([256], BLOCK), False),
        (answer(1024, 1025), seen(range(256, 512), BLOCK), False),
        (answer(8192, 8), seen(range(2048, 2056), BLOCK), False),
        (answer(1024, 8), seen(range(300, 400), BLOCK), False),
    ],
    ids=["enough words", "too few", "all of few", "not all of few", "beyond its block", "no block", "other words"],
)
def test_an_output_is_watched_where_the_judge_read_words_of_its_block(done, observed, watched):
    assert is_watched(done, observed, [(0, 4096), (4096, 1 << 20)]) is watched


@pytest.mark.parametrize("number", [2**40, 2**62])
def test_hostile_numbers_are_not_watched(number):
    view = replace(answer(1024, 1).outputs, shape=(number,), strides=(number,))
    assert not is_watched(Done(index=0, outputs=view), seen(range(256, 512), BLOCK), [(0, 1 << 20)])


def test_memory_that_nobody_wrote_before_is_not_watched():
    done, observed = answer(1024, 1024), seen(range(256, 512), BLOCK)
    assert is_watched(done, observed, [(0, 5120)])
    assert not is_watched(done, observed, [(0, 4096)])


def test_an_answer_without_tensors_has_nothing_to_watch():
    assert is_watched(Done(index=0, outputs=Scalar(value=1)), seen([], []), [])


@pytest.mark.parametrize("changes", [{"offset_bytes": None}, {"copied": True}], ids=["no place", "copied"])
def test_an_output_that_the_window_has_no_room_for_is_not_watched(changes):
    view = replace(answer(1024, 768).outputs, **changes)
    assert not is_watched(Done(index=0, outputs=view), seen(range(256, 512), BLOCK), [(0, 1 << 20)])


def test_calls_have_slots_of_their_own_whether_they_are_released_or_not():
    with HostRegion(8192) as first, HostRegion(4096) as second:
        slots = _slots([first, second], 5)
        others = [_slots([first, second], 5) for _ in range(8)]
    assert [slot.size_bytes for slot in slots] == [8192, 4096, 8192, 4096, 8192]
    ends = [slot.offset_bytes + slot.size_bytes for slot in slots]
    assert all(end <= slot.offset_bytes for end, slot in zip(ends, slots[1:], strict=False))
    assert any(other != slots for other in others)


def test_the_time_of_released_calls_is_the_submissions():
    now = [0.0]
    deadline = Deadline(100.0, clock=lambda: now[0])
    session = object.__new__(RunnerClient)
    session._deadline, session._code = lambda: deadline, Work.CODE
    session.child = SimpleNamespace(socket=SimpleNamespace(fileno=lambda: -1))
    session.let_go = lambda: None
    session.ask = lambda *_: Queued(index=0)
    session.window_answer = lambda *_: Fault(Status.TIMEOUT, finding(Code.TIMED_OUT, "too slow"))

    class End:
        def begin(self): ...

        def end(self): ...

        def release(self, *_):
            now[0] += 7.0
            return []

    clock = object.__new__(HostWindowClock)
    clock._session, clock._end, clock._ticket = session, End(), 1
    clock._outputs, clock._memory_samples = SimpleNamespace(flat=None), SimpleNamespace(written_at=None, written=[])
    nothing = Items(is_tuple=True, items=[])
    call = Call(
        index=1,
        token="0" * 32,
        random_seed=1,
        empty=False,
        forked=False,
        ticket=0,
        schedule=None,
        args=nothing,
        kwargs=nothing,
        output_gradients=None,
    )
    with HostRegion(4096) as region:
        assert isinstance(clock.window([call], [region], bare=False, timeout_s=9.0), Fault)
    assert deadline.submission_s == 7.0
