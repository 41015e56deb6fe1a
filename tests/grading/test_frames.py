"""A runner that a submission has taken over: it speaks to the judge itself.

Most of it is done without a process: the hostile side is a socket here, and the judge's side is the real one.
"""

import array
import gc
import socket
import struct
import threading
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evaluator.catalog import find_problem
from evaluator.devices.memory import HostRegion, SharedMemory, strided
from evaluator.findings import Code
from evaluator.judge.clock.host_clock import HostClock
from evaluator.judge.reference.reference import Reference
from evaluator.judge.runners.runner_client import RunnerClient
from evaluator.judge.trial import call_driver
from evaluator.judge.trial.trial_runner import TrialRunner
from evaluator.protocol.frames import Call, Done, Prepare, Scalar, ToRunner
from evaluator.records import SizeName, Status, ToleranceRule
from evaluator.sandbox.confined_process import ExitInfo
from tests.grading.harness import module

TOKEN = 7
UNKNOWN_TOKEN = call_driver._token
SHAPE = (7, 1023)
STRIDES = (1023, 1)
OUTPUT_BYTES = 1 << 20
SEED = 7
FAILURES = {Status.REJECTED, Status.WRONG_RESULT, Status.RUNTIME_ERROR, Status.TIMEOUT, Status.BUILD_ERROR}


class Puppet:
    """Stands in for a runner's process: there is nothing to freeze, and its end of the socket is `hostile`."""

    def __init__(self) -> None:
        self.socket, self.hostile = socket.socketpair()
        self._decoder = msgspec.msgpack.Decoder(ToRunner)

    def freeze(self) -> bool:
        return True

    def thaw(self) -> None:
        pass

    def wait_exit(self, timeout_s: float) -> ExitInfo:
        return ExitInfo(exit_code=0, signal=None, out_of_memory=False, by_judge=False)

    def kill(self) -> None:
        self.socket.close()
        self.hostile.close()

    def hear(self):
        length = int.from_bytes(self.hostile.recv(4, socket.MSG_WAITALL), "big")
        return self._decoder.decode(self.hostile.recv(length, socket.MSG_WAITALL))

    def tell(self, frame) -> None:
        self.hostile.sendall(framed(msgspec.msgpack.encode(frame)))


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


@pytest.fixture(scope="module", autouse=True)
def known_token():
    """Let the frames of these tests be made before the question: what keeps them out otherwise is not all there is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(call_driver, "_token", lambda: TOKEN)
        yield


@pytest.fixture(scope="module")
def reference():
    return Reference(find_problem("relu"), SizeName.AWKWARD, weight_seed=1)


@pytest.fixture
def play(reference):
    """Let `act` answer the call: it gets the puppet, the call's frame and the output memory. Gives the trial."""

    def run(act, timeout_s=60.0):
        with HostRegion(1 << 20) as inputs, HostRegion(OUTPUT_BYTES) as outputs:
            puppet = Puppet()
            with RunnerClient(puppet, None) as session:
                memory = SharedMemory(inputs, outputs, 1 << 16, None, 1 << 17)
                trial_runner = TrialRunner(reference, HostClock(session, outputs), memory, ToleranceRule.MEASURED)
                actor = threading.Thread(target=_perform, args=(act, puppet, inputs, outputs), daemon=True)
                actor.start()
                trial = trial_runner.run(0, SEED, timeout_s=timeout_s)
            actor.join(60)
            return trial

    return run


def _perform(act, puppet, inputs, outputs):
    try:
        prepare = puppet.hear()
        assert isinstance(prepare, Prepare)
        puppet.tell(Done(index=prepare.index, token=prepare.token, outputs=Scalar(value=None)))
        call = puppet.hear()
        assert isinstance(call, Call)
        act(puppet, call, inputs, outputs)
    except (OSError, msgspec.DecodeError):  # cut off within a frame
        return  # The judge has heard enough.


def view(**changes):
    honest = {"type": "TensorView", "dtype": "float32", "shape": SHAPE, "strides": STRIDES, "offset_bytes": 4096}
    return honest | changes


def done(outputs, **changes):
    return {"type": "Done", "index": 0, "token": TOKEN, "outputs": outputs} | changes


def compute(call, inputs, outputs, *, offset_bytes=4096, strides=STRIDES):
    """Do what the submission should do."""
    import torch

    (given_view,) = call.args.items
    x = strided(inputs.flat, torch.float32, given_view.shape, given_view.strides, given_view.offset_bytes)
    strided(outputs.flat, torch.float32, SHAPE, strides, offset_bytes).copy_(torch.relu(x))


@pytest.mark.parametrize(("offset_bytes", "strides"), [(4096, STRIDES), (8, (1, 7)), (64, (2048, 2))])
def test_the_right_answer_anywhere_in_memory_is_right(play, offset_bytes, strides):
    def act(puppet, call, inputs, outputs):
        compute(call, inputs, outputs, offset_bytes=offset_bytes, strides=strides)
        puppet.tell(done(view(offset_bytes=offset_bytes, strides=strides)))

    trial = play(act)
    assert trial.fault is None
    assert trial.check.ok


BIG = 2**62
VIEWS = {
    "nothing written": view(),
    "at the end": view(offset_bytes=OUTPUT_BYTES),
    "over the end": view(offset_bytes=OUTPUT_BYTES - 4),
    "overflowing offset": view(offset_bytes=2**63 - 4096),
    "largest offset": view(offset_bytes=BIG),
    "no offset": view(offset_bytes=None),
    "odd offset": view(offset_bytes=4097),
    "negative offset": view(offset_bytes=-4096),
    "negative stride": view(strides=(-1023, 1)),
    "overflowing stride": view(strides=(BIG, BIG)),
    "overflow to zero": view(strides=(2**61, 1)),
    "all from one element": view(strides=(0, 0)),
    "missing stride": view(strides=(1,)),
    "negative size": view(shape=(-7, -1023)),
    "overflowing size": view(shape=(BIG, 4)),
    "too many dimensions": view(shape=(1,) * 100, strides=(1,) * 100),
    "64 dimensions": view(shape=(BIG,) * 64, strides=(BIG,) * 64),
    "another shape": view(shape=(1023, 7)),
    "another dtype": view(dtype="int32"),
    "no dtype": view(dtype="__class__"),
    "another device": view(device="cuda"),
    "a storage of no size": view(storage=(0, -(2**63))),
    "a storage beyond everything": view(storage=(2**64 - 1, 2**64 - 1)),
    "unknown field": view(surprise=1),
    "text for a number": view(offset_bytes="4096"),
    "fraction for a number": view(offset_bytes=4096.5),
    "a scalar": {"type": "Scalar", "value": 1.0},
    "an opaque": {"type": "Opaque", "type_name": "x" * 65_536},
    "a longer opaque": {"type": "Opaque", "type_name": "x" * 65_537},
    "a list": {"type": "Items", "is_tuple": False, "items": [view()]},
    "too many items": {"type": "Items", "is_tuple": True, "items": [view()] * 4097},
    "keys without items": {"type": "DictItems", "keys": ["a"], "items": []},
    "long keys": {"type": "DictItems", "keys": ["k" * 60_000] * 40, "items": []},
    "a tag of the judge's": {"type": "Call", "index": 0},
    "no tag": {"value": 1},
}


@pytest.mark.parametrize("outputs", VIEWS.values(), ids=VIEWS)
def test_a_hostile_view_is_a_failure(play, outputs):
    trial = play(lambda puppet, *_: puppet.tell(done(outputs)))
    assert trial.fault.status in FAILURES
    assert trial.check is None or not trial.check.ok
    assert len(trial.fault.finding.message) < 5000


@pytest.mark.parametrize("depth", [10, *range(100, 1100, 200), 9000, 100_000])
@pytest.mark.parametrize("kind", ["Items", "DictItems"])
def test_a_deep_nesting_does_not_bring_the_judge_down(play, kind, depth):
    """Written by hand: an encoder would fail before the judge's decoder does."""
    pack = msgspec.msgpack.encode
    opening = {
        "Items": b"\x83" + pack("type") + pack("Items") + pack("is_tuple") + pack(False) + pack("items") + b"\x91",
        "DictItems": b"\x83" + pack("type") + pack("DictItems") + pack("keys") + pack(["a"]) + pack("items") + b"\x91",
    }[kind]
    body = b"\x83" + pack("type") + pack("Done") + pack("index") + pack(0) + pack("outputs")
    body += opening * depth + pack({"type": "Scalar", "value": 1})
    trial = play(lambda puppet, *_: puppet.hostile.sendall(framed(body)))
    assert trial.fault.status in (Status.REJECTED, Status.WRONG_RESULT)


STREAMS = {
    "an endless length": struct.pack(">I", 2**32 - 1),
    "just too long": struct.pack(">I", (16 << 20) + 1),
    "an empty frame": framed(b""),
    "no msgpack": framed(b"\xc1\xc1\xc1"),
    "a list": framed(msgspec.msgpack.encode([1, 2])),
    "two values in one frame": framed(msgspec.msgpack.encode(done(view())) * 2),
    "invalid UTF-8": framed(b"\x81\xa4type\xa4\xff\xff\xff\xff"),
    "an array of four billion": framed(b"\x83\xa4type\xa4Done\xa5index\x00\xa7outputs\xdd\xff\xff\xff\xff"),
    "the judge's own frame": framed(msgspec.msgpack.encode(Prepare(index=0, token=0, poison=0, ahead_bytes=0))),
    "a failure with forged lines": framed(
        msgspec.msgpack.encode(
            {"type": "Raised", "kind": "k" * 65_536, "message": "\x1b[2J", "lines": [(-(2**63), "")]}
        )
    ),
    "a call that was never made": framed(msgspec.msgpack.encode(done(view(), index=99))),
    "loaded once more": framed(msgspec.msgpack.encode({"type": "Loaded"})),
    "half a frame": framed(msgspec.msgpack.encode(done(view())))[:-1],
    "silence": b"",
}


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
def test_a_hostile_stream_is_a_failure(play, stream):
    trial = play(lambda puppet, *_: puppet.hostile.sendall(stream), timeout_s=0.5)
    assert trial.fault.status in FAILURES


def test_dripping_bytes_gains_no_time(play):
    def act(puppet, *_):
        for byte in framed(b"x" * 1000):
            puppet.hostile.sendall(bytes([byte]))
            time.sleep(0.02)

    assert play(act, timeout_s=0.5).fault.status is Status.TIMEOUT


def open_sockets() -> int:
    return sum(
        1 for each in Path("/proc/self/fd").iterdir() if str(each.resolve()).rpartition("/")[2].startswith("socket:")
    )


def test_descriptors_are_refused_and_closed(play):
    gc.collect()  # Sockets of earlier tests may be closed at any time.
    before = open_sockets()

    def act(puppet, *_):
        numbers = array.array("i", [puppet.hostile.fileno()] * 200)
        puppet.hostile.sendmsg([framed(b"x")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)])

    trial = play(act)
    assert (trial.fault.status, trial.fault.finding.code) == (Status.REJECTED, Code.MALFORMED_FRAME)
    assert open_sockets() <= before


def test_a_flood_of_build_requests_that_reads_no_reply_ends(play):
    request = framed(msgspec.msgpack.encode({"type": "BuildRequest", "name": "x"}))

    def act(puppet, *_):
        while True:
            puppet.hostile.sendall(request * 100)

    assert play(act, timeout_s=1.0).fault.status in FAILURES


numbers = st.one_of(st.integers(-(2**63), 2**64 - 1), st.integers(-2000, OUTPUT_BYTES + 2000))
sizes = st.lists(st.one_of(st.sampled_from([7, 1023, 0, 1]), numbers), max_size=6)
leaf = st.one_of(
    st.builds(
        lambda shape, strides, offset: view(shape=shape, strides=strides, offset_bytes=offset),
        st.one_of(st.just(SHAPE), sizes),
        st.one_of(st.just(STRIDES), sizes),
        numbers,
    ),
    st.builds(lambda value: {"type": "Scalar", "value": value}, st.one_of(st.none(), st.floats(), st.text(max_size=9))),
)
trees = st.recursive(
    leaf,
    lambda inner: st.builds(
        lambda items, is_tuple: {"type": "Items", "is_tuple": is_tuple, "items": items},
        st.lists(inner, max_size=3),
        st.booleans(),
    ),
    max_leaves=6,
)


@pytest.mark.parametrize("token", [TOKEN + 1, 0, -1, "7", None])
def test_an_answer_from_somebody_who_has_not_read_the_question_is_refused(play, token):
    def act(puppet, call, inputs, outputs):
        compute(call, inputs, outputs)
        puppet.tell(done(view(), token=token))

    fault = play(act).fault
    assert (fault.status, fault.finding.code) == (Status.REJECTED, Code.MALFORMED_FRAME.value)


def test_no_two_questions_have_the_same_token():
    drawn = {UNKNOWN_TOKEN() for _ in range(1000)}
    assert len(drawn) == 1000
    assert max(drawn) > 2**55


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(outputs=trees)
def test_no_tree_of_views_is_correct_or_brings_the_judge_down(play, outputs):
    trial = play(lambda puppet, *_: puppet.tell(done(outputs)))
    assert trial.fault.status in (Status.REJECTED, Status.WRONG_RESULT)


TAKEOVER = (
    "import gc, os, socket, sys",
    "from evaluator.protocol.frames import Channel, Constructed, Done, Loaded, Scalar, TensorView",
    "(channel,) = [thing for thing in gc.get_objects() if isinstance(thing, Channel)]",
    "right = TensorView(dtype='float32', shape=(7, 1023), strides=(1023, 1), offset_bytes=12288)",
)


def test_answers_sent_in_advance_are_not_believed(grade):
    source = module(
        *TAKEOVER,
        "channel.send(Loaded())",
        "channel.send(Constructed(difference=None))",
        "for index in range(200):",
        "    channel.send(Done(index=index, outputs=Scalar(value=None)))",
        "    channel.send(Done(index=index, outputs=right))",
    )
    run = grade(source)
    assert run.card.status in (Status.WRONG_RESULT, Status.REJECTED)
    assert run.reason in (Code.WRONG_VALUES, Code.WRONG_ON_OTHER_VALUES, Code.NOT_FINITE, Code.MALFORMED_FRAME)


def test_a_second_writer_on_the_socket_is_caught(grade):
    source = module(
        *TAKEOVER,
        "descriptors = [int(name) for name in os.listdir('/proc/self/fd')]",
        "def is_socket(number):",
        "    try: return socket.socket(fileno=os.dup(number)).family == socket.AF_UNIX",
        "    except OSError: return False",
        "sockets = [number for number in descriptors if is_socket(number)]",
        "print(len(sockets))",
        "for number in sockets: os.write(number, b'\\xff' * 64)",
    )
    run = grade(source)
    run.assert_verdict(Status.REJECTED, Code.MALFORMED_FRAME)
    assert run.card.output.text == "1\n"
