"""The wire between judge and runner: honest frames arrive as they were, everything else ends in one of three errors."""

import contextlib
import os
import socket
import threading
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.protocol.frames import (
    MAX_DESCRIPTORS,
    MAX_FRAME_BYTES,
    BuildReply,
    BuildRequest,
    Call,
    Channel,
    Closed,
    DeadlinePassed,
    DictItems,
    Done,
    FrameError,
    FromRunner,
    Items,
    Load,
    Loaded,
    Opaque,
    Prepare,
    Raised,
    Scalar,
    SourceFile,
    TensorView,
    ToRunner,
    channel,
)

VIEW = TensorView(
    dtype="float32", shape=(2, 3), strides=(3, 1), offset_bytes=256, copied=True, storage=(140_000_000_000_000, 24)
)
encode = msgspec.msgpack.Encoder().encode


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with contextlib.closing(theirs):
        channel = Channel(ours, receives=FromRunner)
        yield channel, theirs
        channel.close()


@contextlib.contextmanager
def receiving(data: bytes):
    """Give the judge's channel with `data` and the end of the stream before it."""
    ours, theirs = socket.socketpair()
    writer = threading.Thread(target=_feed, args=(theirs, data))
    writer.start()
    channel = Channel(ours, receives=FromRunner)
    try:
        yield channel
    finally:
        channel.close()
        writer.join()


def _feed(sock: socket.socket, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError), sock:
        sock.sendall(data)


def open_descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def pipes(count: int) -> list[int]:
    return [end for _ in range(count) for end in os.pipe()]


def close_all(descriptors) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


plain = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(max_size=20)
dimensions = st.lists(st.integers(0, 2**62), max_size=6).map(tuple)
views = st.builds(
    TensorView,
    dtype=st.sampled_from(["float32", "bool"]),
    shape=dimensions,
    strides=dimensions,
    offset_bytes=st.none() | st.integers(0, 2**62),
    copied=st.booleans(),
)
nodes = st.recursive(
    views | st.builds(Scalar, value=plain) | st.builds(Opaque, type_name=st.text(max_size=20)),
    lambda below: (
        st.builds(Items, is_tuple=st.booleans(), items=st.lists(below, max_size=4))
        | st.builds(
            DictItems, keys=st.lists(st.integers(0, 9) | st.text(max_size=5), max_size=4), items=st.lists(below)
        )
    ),
    max_leaves=8,
)
from_runner = st.one_of(
    st.just(Loaded()),
    st.builds(
        Done,
        index=st.integers(0, 2**40),
        outputs=nodes,
        gradients=st.none() | st.dictionaries(st.text(max_size=9), st.none() | views),
    ),
    st.builds(Raised, kind=st.text(max_size=9), message=st.text(max_size=99)),
    st.builds(
        BuildRequest, name=st.text(max_size=9), cpp_sources=st.lists(st.text(max_size=99)), with_cuda=st.booleans()
    ),
)


@given(sent=st.lists(from_runner, min_size=1, max_size=4))
def test_frames_arrive_as_they_were_sent_and_in_order(sent):
    ours, theirs = socket.socketpair()
    runner, judge = Channel(theirs, receives=ToRunner), Channel(ours, receives=FromRunner)
    with contextlib.closing(runner), contextlib.closing(judge):
        for frame in sent:
            runner.send(frame)
        assert [judge.receive(60) for _ in sent] == sent


@pytest.mark.parametrize(
    "frame",
    [
        Load(
            submission="é\U0001f600" * 1000,
            model="",
            entries=["ModelNew", "Model"],
            input_bytes=1,
            output_bytes=2,
            copy_bytes=3,
            device="cpu",
            library=True,
            threads=4,
        ),
        BuildReply(ok=False, log="x" * 100_000),
        Call(
            index=1,
            token=2**62,
            random_seed=2**63 - 1,
            ticket=7,
            empty=True,
            forked=False,
            schedule=None,
            args=Items(is_tuple=False, items=[VIEW]),
            kwargs=DictItems(keys=["mask", 3], items=[Scalar(value=None), Scalar(value=2.0)]),
            output_gradients=None,
        ),
        Prepare(index=1, token=5, poison=255, ahead_bytes=2**40),
        Prepare(index=0, token=0, poison=0, ahead_bytes=0),
    ],
)
def test_the_judges_frames_arrive(frame):
    ours, theirs = socket.socketpair()
    judge, runner = Channel(ours, receives=FromRunner), Channel(theirs, receives=ToRunner)
    with contextlib.closing(judge), contextlib.closing(runner):
        judge.send(frame)
        received = runner.receive(60)
        assert received == frame
        assert type(received) is type(frame)


def test_a_number_keeps_its_type():
    for value in (True, 1, 1.0, 2.0, -0.0):
        received = msgspec.msgpack.decode(encode(Scalar(value=value)), type=Scalar).value
        assert type(received) is type(value)
        assert repr(received) == repr(value)


def test_descriptors_arrive_and_belong_to_the_receiver(pair):
    judge, theirs = pair
    runner = Channel(theirs, receives=ToRunner)
    reading, writing = os.pipe()
    runner.send(Loaded(), [writing])
    os.close(writing)
    assert judge.receive(60) == Loaded()
    (taken,) = judge.take_descriptors()
    assert taken != writing or not os.get_inheritable(taken)
    assert not os.get_inheritable(taken)
    os.write(taken, b"hello")
    os.close(taken)
    assert os.read(reading, 9) == b"hello"
    assert judge.take_descriptors() == []
    os.close(reading)


def test_descriptors_that_nobody_takes_are_closed_with_the_channel():
    before = open_descriptors()
    ours, theirs = socket.socketpair()
    judge = Channel(ours, receives=FromRunner)
    ends = pipes(1)
    with theirs:
        Channel(theirs, receives=ToRunner).send(Loaded(), ends)
        judge.receive(60)
        assert len(open_descriptors()) == len(before) + 2 + 2 * len(ends)
        judge.close()
    close_all(ends)
    assert open_descriptors() == before


@pytest.mark.parametrize("messages", [[MAX_DESCRIPTORS + 2], [100], [252], [1] * (MAX_DESCRIPTORS + 1)], ids=len)
def test_too_many_descriptors_break_the_protocol(messages):
    before = open_descriptors()
    ours, theirs = socket.socketpair()
    judge = Channel(ours, receives=FromRunner)
    end = os.open("/dev/null", os.O_RDONLY)
    with theirs:
        for count in messages:
            socket.send_fds(theirs, [framed(encode(Loaded()))], [end] * count)
        for _ in messages[1:]:
            judge.receive(60)
        with pytest.raises(FrameError, match="too many descriptors"):
            judge.receive(60)
        judge.close()
    os.close(end)
    assert open_descriptors() == before


def outcome(data: bytes) -> str:
    """Receive until the stream ends, and name what ended it. Any other exception is the test's failure."""
    with receiving(data) as channel:
        try:
            while True:
                channel.receive(60)
        except (FrameError, Closed) as error:
            return type(error).__name__


@given(data=st.binary(max_size=400))
def test_random_bytes_end_in_an_error_of_the_protocol(data):
    assert outcome(data) in ("FrameError", "Closed")


@given(body=st.binary(max_size=300))
def test_a_random_body_is_no_frame(body):
    assert outcome(framed(body)) == "FrameError"


@given(frame=from_runner, data=st.data())
def test_a_truncated_frame_is_a_closed_socket(frame, data):
    whole = framed(encode(frame))
    assert outcome(whole[: data.draw(st.integers(0, len(whole) - 1))]) == "Closed"


@given(frame=from_runner, data=st.data())
def test_a_shortened_body_is_no_frame(frame, data):
    body = encode(frame)
    assert outcome(framed(body[: data.draw(st.integers(0, len(body) - 1))])) == "FrameError"


@given(frame=from_runner, data=st.data())
def test_a_mutated_frame_is_a_frame_or_an_error(frame, data):
    body = bytearray(encode(frame))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    assert outcome(framed(bytes(body))) in ("FrameError", "Closed")


@pytest.mark.parametrize("length", [MAX_FRAME_BYTES + 1, 2**31, 2**32 - 1])
def test_a_huge_length_is_refused_before_anything_is_read(pair, length):
    judge, theirs = pair
    theirs.sendall(length.to_bytes(4, "big"))
    with pytest.raises(FrameError, match=str(length)):
        judge.receive(60)


def test_an_own_frame_that_is_too_long_is_not_sent(pair, monkeypatch):
    monkeypatch.setattr(channel, "MAX_FRAME_BYTES", 100)
    judge, theirs = pair
    with pytest.raises(FrameError):
        judge.send(BuildReply(ok=False, log="x" * 101))
    theirs.setblocking(False)
    with pytest.raises(BlockingIOError):
        theirs.recv(1)


def nested(depth: int) -> bytes:
    """Encode a Done whose outputs are lists in lists in lists."""
    leaf = encode(Scalar(value=None))
    opening = encode(Items(is_tuple=False, items=[Scalar(value=None)])).removesuffix(leaf)
    start, end = encode(Done(index=1, outputs=Scalar(value=None))).split(leaf)
    return start + opening * depth + leaf + end


def test_lists_in_lists_are_decoded():
    with receiving(framed(nested(30))) as channel:
        assert isinstance(channel.receive(60), Done)


def answer(**changes) -> bytes:
    view = {"dtype": "float32", "shape": (1,), "strides": (1,), "offset_bytes": 0}
    return encode(Done(index=0, outputs=TensorView(**(view | changes))))


REFUSED = {
    "a deep nest": nested(100_000),
    "a deep nest of no frame": b"\x91" * 100_000,
    "a deep nest of maps": b"\x81" * 100_000,
    "a negative size": answer(shape=(-1,)),
    "a huge size": answer(shape=(2**62 + 1,)),
    "a huge stride": answer(strides=(2**63,)),
    "a negative offset": answer(offset_bytes=-1),
    "65 dimensions": answer(shape=(1,) * 65, strides=(1,) * 65),
    "many values": encode(Done(index=0, outputs=Items(is_tuple=True, items=[Scalar(value=None)] * 5000))),
    "a key that is a fraction": encode(Done(index=0, outputs=DictItems(keys=[1.5], items=[]))),
    "a frame of the judge": encode(Prepare(index=0, token=0, poison=0, ahead_bytes=0)),
    "a reply of the judge": encode(BuildReply(ok=True, log="")),
    "an unknown field": encode({"type": "Loaded", "status": "correct"}),
    "a missing field": encode({"type": "Done", "index": 1}),
    "a text for a number": encode({"type": "Done", "index": "1", "outputs": {"type": "Scalar", "value": None}}),
    "300 sources": encode(BuildRequest(name="x", files=[SourceFile(name="a.cpp", text="")] * 300)),
    "no UTF-8": encode(Raised(kind="AAAA", message="")).replace(b"AAAA", b"\xff\xfe\xc0\x80"),
}


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED)
def test_any_other_frame_is_refused(body):
    assert outcome(framed(body)) == "FrameError"


def test_nothing_at_all_passes_the_deadline(pair):
    judge, _ = pair
    start = time.monotonic()
    with pytest.raises(DeadlinePassed):
        judge.receive(0.05)
    assert time.monotonic() - start > 0.04


@pytest.mark.parametrize("timeout_s", [0.0, -1.0])
def test_a_deadline_in_the_past_passes_at_once(pair, timeout_s):
    judge, theirs = pair
    theirs.sendall(framed(encode(Loaded())))
    with pytest.raises(DeadlinePassed):
        judge.receive(timeout_s)


def test_dripped_bytes_do_not_move_the_deadline(pair):
    judge, theirs = pair
    stop = threading.Event()

    def drip():
        theirs.sendall((1000).to_bytes(4, "big"))
        while not stop.wait(0.02):
            theirs.sendall(b"x")

    dripping = threading.Thread(target=drip)
    dripping.start()
    try:
        with pytest.raises(DeadlinePassed):
            judge.receive(0.2)
    finally:
        stop.set()
        dripping.join()


def test_a_frame_that_a_deadline_cut_goes_on_with_the_next_wait(pair):
    judge, theirs = pair
    data = framed(encode(Loaded()))
    for piece in (data[:2], data[2:6]):
        theirs.sendall(piece)
        with pytest.raises(DeadlinePassed):
            judge.receive(0.01)
    theirs.sendall(data[6:] + data)
    assert [judge.receive(60), judge.receive(60)] == [Loaded()] * 2


def test_a_frame_in_many_pieces_arrives(pair):
    judge, theirs = pair
    data = framed(encode(Raised(kind="ValueError", message="no")))
    writer = threading.Thread(target=lambda: [theirs.sendall(data[i : i + 1]) for i in range(len(data))])
    writer.start()
    assert judge.receive(60) == Raised(kind="ValueError", message="no")
    writer.join()


def test_who_does_not_read_cannot_hold_the_sender_up(pair):
    judge, _ = pair
    with pytest.raises(DeadlinePassed):
        judge.send(BuildReply(ok=False, log="x" * (8 << 20)), timeout_s=0.1)


def test_a_send_without_a_deadline_waits_for_its_reader(pair):
    judge, theirs = pair
    runner = Channel(theirs, receives=ToRunner)
    received = []
    reader = threading.Thread(target=lambda: (time.sleep(0.1), received.append(runner.receive(60))))
    with pytest.raises(DeadlinePassed):
        judge.receive(0.01)  # whose own deadline must not stay behind on the socket
    reader.start()
    judge.send(BuildReply(ok=False, log="x" * (4 << 20)))
    reader.join()
    assert len(received[0].log) == 4 << 20


def test_the_other_side_being_gone_is_closed():
    ours, theirs = socket.socketpair()
    judge = Channel(ours, receives=FromRunner)
    theirs.close()
    with pytest.raises(Closed):
        judge.receive(60)
    with pytest.raises(Closed):
        judge.send(Prepare(index=0, token=0, poison=0, ahead_bytes=0))
    judge.close()


def test_a_reset_with_unread_data_is_closed():
    ours, theirs = socket.socketpair()
    judge = Channel(ours, receives=FromRunner)
    judge.send(Prepare(index=0, token=0, poison=0, ahead_bytes=0))
    theirs.close()  # with data unread: the next read here ends in ECONNRESET
    with pytest.raises(Closed):
        judge.receive(60)
    judge.close()
