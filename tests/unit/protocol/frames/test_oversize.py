"""How much a frame may hold: honest extremes pass, everything beyond is refused before work is done on it (J4, J5)."""

import contextlib
import socket

import msgspec
import pytest

from evaluator.protocol.frames import (
    BuildRequest,
    Channel,
    Constructed,
    DeadlinePassed,
    DictItems,
    Done,
    FrameError,
    FromRunner,
    Items,
    Loaded,
    Opaque,
    Profiled,
    Raised,
    Scalar,
    SeenKernel,
    SourceFile,
    TensorView,
)
from evaluator.protocol.frames.bounds import MAX_FRAME_BYTES, MOST_DEPTH, MOST_NODES, most_bytes_from_runner
from evaluator.protocol.frames.oversize import oversized_answer, oversized_request, unsendable_request

encode = msgspec.msgpack.encode
VIEW = TensorView(
    dtype="float32", shape=(2,) * 4, strides=(1,) * 4, offset_bytes=2**40, storage=(140_000_000_000_000, 2**40)
)
NOTHING = Scalar(value=None)
LONG_NAME = "parameter " + "encoder.layers.11.attention." * 10


def nested(depth):
    node = NOTHING
    for _ in range(depth):
        node = Items(is_tuple=True, items=[node])
    return node


HONEST = {
    "500 tensors, nested": Done(
        index=0, outputs=Items(False, [DictItems(keys=[str(j) for j in range(5)], items=[VIEW] * 5)] * 100)
    ),
    "2000 gradients with long names": Done(
        index=0, outputs=VIEW, gradients={f"{LONG_NAME}{number}": VIEW for number in range(2000)}
    ),
    "a CUDA text of 900 KiB": BuildRequest(name="mine", cuda_sources=["// a comment\n" * (900 << 10 >> 4)]),
    "1 MiB of sources in another alphabet": BuildRequest(name="mine", cpp_sources=["\U0001f600" * (1 << 18)]),
    "30 flags": BuildRequest(name="mine", extra_cuda_cflags=["-DNAME=" + "x" * 200] * 30),
    "500 functions": BuildRequest(name="mine", functions={f"relu_{number}": "does it" * 9 for number in range(500)}),
    "256 kernels": Profiled([SeenKernel("k" * 2000, 1, 1.0)] * 256, 0),
    "a long traceback": Raised("ValueError", "x" * 8000, [(1, "y" * 500)] * 32),
}


@contextlib.contextmanager
def judge_hears(data, *, closed=True):
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)
    theirs.settimeout(60)
    channel = Channel(ours, receives=FromRunner, most_bytes=most_bytes_from_runner)
    with contextlib.closing(theirs), contextlib.closing(channel):
        theirs.sendall(data)
        if closed:
            theirs.shutdown(socket.SHUT_WR)
        yield channel


@pytest.mark.parametrize("frame", HONEST.values(), ids=HONEST)
def test_honest_extremes_are_within_bounds(frame):
    body = encode(frame)
    assert len(body) * 1.5 < most_bytes_from_runner(body)
    assert msgspec.msgpack.decode(body, type=FromRunner) == frame
    if isinstance(frame, Done):
        assert oversized_answer(frame.outputs) is None
    if isinstance(frame, BuildRequest):
        assert unsendable_request(frame) is None


@pytest.mark.parametrize(
    ("frame", "most"),
    [
        (Loaded(), 4 << 10),
        (Constructed(None), 256 << 10),
        (Raised("x", "y"), 512 << 10),
        (Done(index=0, outputs=NOTHING), 3 << 20),
        (BuildRequest(name="x"), 5 << 20),
        (VIEW, 4 << 10),
    ],
)
def test_the_tag_says_how_long_a_frame_may_be(frame, most):
    assert most_bytes_from_runner(encode(frame)) == most
    assert most < MAX_FRAME_BYTES


@pytest.mark.parametrize(
    "head", [b"", b"\x80", b"\x82\xa5index\x01\xa4type\xa4Done", b"\xc1" * 64, b"\x81\xa4type\x01"]
)
def test_a_frame_that_does_not_begin_with_its_tag_is_a_short_one(head):
    assert most_bytes_from_runner(head) == 4 << 10


@pytest.mark.parametrize("tag", ["Loaded", "Done", "Raised", "Profiled", "BuildRequest", "Call", "Load"])
def test_a_frame_too_long_for_its_tag_is_refused_before_it_arrives(tag):
    """Only its head is sent, and the sender waits: who reads on would wait too."""
    head = b"\x82\xa4type" + bytes([0xA0 + len(tag)]) + tag.encode() + b"\xa5index"
    length = most_bytes_from_runner(head) + 1
    data = length.to_bytes(4, "big") + head.ljust(64, b"\x00")
    with judge_hears(data, closed=False) as channel, pytest.raises(FrameError, match=f"a frame of {length} bytes"):
        channel.receive(60)
    with (
        judge_hears((length - 1).to_bytes(4, "big") + head.ljust(64, b"\x00"), closed=False) as channel,
        pytest.raises(DeadlinePassed),
    ):
        channel.receive(0.05)


BEYOND = {
    "a type's name": {"type": "Done", "index": 0, "outputs": {"type": "Opaque", "type_name": "x" * 1025}},
    "a dtype": {"type": "Done", "index": 0, "outputs": {**msgspec.to_builtins(VIEW), "dtype": "x" * 65}},
    "a device": {"type": "Done", "index": 0, "outputs": {**msgspec.to_builtins(VIEW), "device": "x" * 65}},
    "a storage": {"type": "Done", "index": 0, "outputs": {**msgspec.to_builtins(VIEW), "storage": [-1, 4]}},
    "a key": {"type": "Done", "index": 0, "outputs": {"type": "DictItems", "keys": ["x" * 1025], "items": []}},
    "gradients": {"type": "Done", "index": 0, "outputs": None, "gradients": {str(n): None for n in range(4097)}},
    "a gradient's name": {"type": "Done", "index": 0, "outputs": None, "gradients": {"x" * 1025: None}},
    "functions": {"type": "BuildRequest", "name": "x", "functions": {str(n): "" for n in range(1025)}},
    "a function's name": {"type": "BuildRequest", "name": "x", "functions": {"x" * 1025: ""}},
    "flags": {"type": "BuildRequest", "name": "x", "extra_cflags": [""] * 257},
    "a flag": {"type": "BuildRequest", "name": "x", "extra_cuda_cflags": ["x" * 4097]},
    "an ldflag": {"type": "BuildRequest", "name": "x", "extra_ldflags": ["x" * 4097]},
    "folders": {"type": "BuildRequest", "name": "x", "extra_include_paths": [""] * 257},
    "a name": {"type": "BuildRequest", "name": "x" * 1025},
    "a file's name": {"type": "BuildRequest", "name": "x", "files": [{"type": "SourceFile", "name": "x" * 1025}]},
    "a kind": {"type": "Raised", "kind": "x" * 1025, "message": ""},
    "a line": {"type": "Raised", "kind": "x", "message": "", "lines": [[1, "x" * 1025]]},
}


@pytest.mark.parametrize("frame", BEYOND.values(), ids=BEYOND)
def test_every_field_has_a_bound(frame):
    body = encode(frame)
    with judge_hears(len(body).to_bytes(4, "big") + body) as channel, pytest.raises(FrameError):
        channel.receive(60)


def test_an_answer_is_not_nested_too_deeply_and_has_not_too_many_values():
    assert oversized_answer(nested(MOST_DEPTH)) is None
    assert "deep" in oversized_answer(nested(MOST_DEPTH + 1))
    row = Items(False, [NOTHING] * 1023)
    assert oversized_answer(Items(False, [row] * (MOST_NODES // 1024 - 1))) is None
    assert "values" in oversized_answer(Items(False, [row] * (MOST_NODES // 1024 + 1)))
    assert oversized_answer(Opaque("x")) is None


@pytest.mark.parametrize(
    "request_",
    [
        BuildRequest(name="x", extra_cflags=["-D" + "x" * 4000] * 9),
        BuildRequest(name="x", extra_cflags=["x" * 4000] * 4, extra_include_paths=["y" * 4000] * 5),
        BuildRequest(name="x", cuda_sources=["x" * (3 << 20)] * 2),
        BuildRequest(name="x", files=[SourceFile("a.cpp", "\U0001f600" * (1 << 20)), SourceFile("b.cpp", "x")]),
        BuildRequest(name="x", functions={"f": "\U0001f600" * 60_000, **{f"g{n}": "x" * 60_000 for n in range(70)}}),
    ],
    ids=["flags", "flags of several kinds", "sources", "another alphabet", "docstrings"],
)
def test_all_of_a_request_together_has_a_bound(request_):
    assert oversized_request(request_) is not None
    assert unsendable_request(request_) is not None


def test_what_no_frame_holds_cannot_be_sent():
    assert unsendable_request(BuildRequest(name="x", cpp_sources=["\udc80"])) is not None
    assert unsendable_request(BuildRequest(name="x" * 1025)) is not None
    assert unsendable_request(BuildRequest(name="x", extra_cflags=["-O3"] * 257)) is not None
