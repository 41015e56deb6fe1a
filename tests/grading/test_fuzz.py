"""Random frames and random submissions: for each of them, the judge does not crash, does not hang, and passes nothing.

A few dozen of each in a usual run; `make fuzz` (`WARPGRADE_FUZZ=10000`) tries that many frames and texts.
"""

import os
import socket
import threading
import time

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from evaluator.catalog import find_problem
from evaluator.devices.memory import HostRegion, SharedMemory
from evaluator.grade_options import GradeOptions
from evaluator.judge.clock.host_clock import HostClock
from evaluator.judge.context.grade_context import GradeContext
from evaluator.judge.context.reference_timing import ReferenceTimer
from evaluator.judge.exhibits import ablation
from evaluator.judge.reference.reference import Reference
from evaluator.judge.runners.runner_client import RunnerClient
from evaluator.judge.runners.runner_faults import Stage
from evaluator.judge.setup.grade_terms import GradeTerms
from evaluator.judge.setup.seed_book import SeedBook
from evaluator.judge.trial.model_runner import ModelRunner
from evaluator.judge.trial.trial_runner import TrialRunner
from evaluator.judge.verdict import judge
from evaluator.lint.lint import look
from evaluator.progress import Silent, Stopwatch
from evaluator.protocol.frames import (
    Call,
    Construct,
    Constructed,
    Counted,
    DictItems,
    Done,
    Items,
    Load,
    Prepare,
    Scalar,
)
from evaluator.protocol.frames.values import ModelMode
from evaluator.records import DeviceKind, Fault, Finding, SizeName, Status, ToleranceRule
from evaluator.submission.read import MAX_CODE_BYTES, Submission, read_submission
from tests.grading.harness import passable_folder
from tests.grading.test_frames import FAILURES, OUTPUT_BYTES, Puppet, done, framed, known_token, view  # noqa: F401

CASES = int(os.environ.get("WARPGRADE_FUZZ", "60"))
LIMIT_S = 120.0
fuzzed = settings(
    max_examples=CASES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)

HONEST = [
    msgspec.msgpack.encode(frame)
    for frame in (
        done(view()),
        {"type": "Loaded"},
        {"type": "Constructed", "difference": None},
        {"type": "Queued", "index": 0},
        {"type": "Counted", "launches": 1, "library_calls": 0, "own_calls": 0, "mixed_calls": 0},
        {"type": "Failed", "kind": "ValueError", "message": "no", "lines": [[1, "x"]]},
        {"type": "BuildRequest", "name": "x", "cuda_sources": ["__global__ void k() {}"], "functions": {"f": "f"}},
        {"type": "Warmed"},
        {"type": "Prepare", "index": 0, "token": 0, "poison": 0, "ahead_bytes": 0},
    )
]
TAGS = [
    "Done",
    "Loaded",
    "Constructed",
    "Failed",
    "BuildRequest",
    "Counted",
    "TensorView",
    "Items",
    "Table",
    "Call",
    "x",
]
FIELDS = [
    "type",
    "index",
    "outputs",
    "gradients",
    "launches",
    "kind",
    "message",
    "lines",
    "name",
    "difference",
    "items",
]
fields = st.sampled_from(FIELDS)
plain = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=20) | st.binary()
values = st.recursive(
    plain,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(fields | st.text(max_size=5), inner, max_size=5),
        st.builds(lambda tag, rest: {"type": tag, **rest}, st.sampled_from(TAGS), st.dictionaries(fields, inner)),
    ),
    max_leaves=12,
)


@st.composite
def damaged(draw):
    """Give an honest frame with some bytes changed, cut or put in."""
    body = bytearray(draw(st.sampled_from(HONEST)))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(len(body) - 1, 0)))
        match draw(st.sampled_from(("change", "cut", "put"))):
            case "change" if body:
                body[place] = draw(st.integers(0, 255))
            case "cut":
                del body[place : place + draw(st.integers(1, 9))]
            case _:
                body[place:place] = draw(st.binary(max_size=9))
    return framed(bytes(body))


frames = st.one_of(
    damaged(),
    values.map(lambda value: framed(msgspec.msgpack.encode(value))),
    st.binary(max_size=64).map(framed),
    st.binary(max_size=64),
    st.sampled_from(HONEST).map(framed),
)
streams = st.lists(frames, min_size=1, max_size=4).map(b"".join)


@pytest.fixture(scope="module")
def reference():
    return Reference(find_problem("relu"), SizeName.AWKWARD, weight_seed=1)


@pytest.fixture(scope="module")
def memory():
    with HostRegion(1 << 20) as inputs, HostRegion(OUTPUT_BYTES) as outputs:
        yield SharedMemory(inputs, outputs, 1 << 16, None, 1 << 17)


class Hostile(Puppet):
    """Reads what the judge says and throws it away; says its own piece, and hangs up."""

    def __init__(self, stream: bytes, *, prepares: bool) -> None:
        super().__init__()
        self._thread = threading.Thread(target=self._perform, args=(stream, prepares), daemon=True)
        self._thread.start()

    def _perform(self, stream: bytes, prepares: bool) -> None:
        try:
            if prepares:
                frame = self.hear()
                assert isinstance(frame, Prepare)
                self.tell(Done(index=frame.index, token=frame.token, outputs=Scalar(value=None)))
                assert isinstance(self.hear(), Call)
            self.hostile.sendall(stream)
            self.hostile.shutdown(socket.SHUT_WR)
            while self.hostile.recv(1 << 16):
                pass
        except (OSError, msgspec.DecodeError):  # cut off within a frame
            return

    def kill(self) -> None:
        super().kill()
        self._thread.join(LIMIT_S)


@fuzzed
@given(stream=streams)
def test_no_stream_is_a_right_answer(reference, memory, stream):
    started = time.monotonic()
    memory.outputs.flat.zero_()
    with RunnerClient(Hostile(stream, prepares=True), None) as session:
        trial_runner = TrialRunner(reference, HostClock(session, memory.outputs), memory, ToleranceRule.MEASURED)
        trial = trial_runner.run(0, 7, timeout_s=60.0)
    assert trial.fault.status in FAILURES
    assert trial.check is None or not trial.check.ok
    assert time.monotonic() - started < LIMIT_S


@fuzzed
@given(stream=streams)
def test_no_stream_upsets_what_comes_before_a_call(memory, stream):
    """Loading and constructing: what is not the one frame that belongs there is a failure."""
    with RunnerClient(Hostile(stream, prepares=False), None) as session:
        load = Load("", "", ["ModelNew"], 1 << 20, 1 << 20, 1 << 16, "cpu", library=False, threads=1)
        loaded = session.ask(load, Stage.IMPORT, 60.0)
        assert not isinstance(loaded, Fault) or loaded.status in FAILURES
        nothing = Items(is_tuple=False, items=[])
        made = session.construct(
            Construct(1, ModelMode.TRAIN, nothing, DictItems([], []), DictItems([], [])), timeout_s=60.0
        )
        assert isinstance(made, Constructed | Fault)
        place = ModelRunner(None, "", session, memory, HostClock(session, memory.outputs))
        counted = ablation._count(place, 60.0)
        assert counted is None or isinstance(counted, Counted)


MARKS = [
    "```python\n",
    "```",
    "~~~\n",
    "\n",
    "class ModelNew(nn.Module):\n",
    "ModelNew = 1\n",
    "</think>\n",
    "    ",
    "\r\n",
]
marked = st.lists(st.sampled_from(MARKS) | st.text(max_size=20), max_size=30).map("".join)
texts = st.binary(max_size=200) | marked.map(lambda text: text.encode("utf-8", "replace"))


@fuzzed
@given(data=texts, suffix=st.sampled_from([".py", ".md", ".txt", ""]))
def test_any_file_is_a_submission_or_a_finding(tmp_path, data, suffix):
    path = tmp_path / f"mine{suffix}"
    path.write_bytes(data)
    read = read_submission(path)
    assert isinstance(read, Submission | Finding)
    if isinstance(read, Submission):
        assert len(read.source.encode()) <= MAX_CODE_BYTES
        look(read.source)


LINES = """
return x; return None; return [x, x]; return {'a': x}; return x.new_empty(0); return x.to(torch.float64); return self
return x.t().contiguous(); return torch.empty_like(x); return x.expand(3, *x.shape); x.zero_(); x.resize_(1); 1 / 0
raise SystemExit(0); raise KeyboardInterrupt; __import__('os')._exit(0); __import__('os').closerange(3, 99); x = x * 0
__import__('os').write(3, b'x' * 99); print('correct'); return torch.full_like(x, float('nan')); return x.to_sparse()
raise MemoryError; __import__('sys').setrecursionlimit(10**9); return x.requires_grad_(True); return torch.zeros(10**15)
"""
LINES = [line.strip() for line in LINES.replace("\n", ";").split(";") if line.strip()]
programs = st.lists(st.sampled_from(LINES), min_size=1, max_size=3).map(
    lambda lines: "\n        ".join(["def forward(self, x):", *lines])
)


@pytest.fixture(scope="module")
def context():
    with passable_folder() as cache, pytest.MonkeyPatch.context() as patch:
        patch.setenv("WARPGRADE_CACHE", os.environ.get("WARPGRADE_CACHE", str(cache)))
        terms = GradeTerms(
            find_problem("relu"),
            GradeOptions(device=DeviceKind.CPU, size=SizeName.AWKWARD, timeout_s=60.0, build_timeout_s=60.0),
            None,
            threads=1,
        )
        with GradeContext(terms, "", SeedBook(None)) as made:
            yield made


@settings(fuzzed, max_examples=max(CASES // 20, 3))
@given(program=programs, own_kernel=st.booleans())
def test_no_program_of_nonsense_is_correct(context, program, own_kernel):
    """No program computes a ReLU; each runs in a sandboxed runner of its own."""
    source = f"import torch\nfrom torch import nn\nclass ModelNew(nn.Module):\n    {program}\n"
    options = replace(context.terms.options, require_own_kernel=0.5 if own_kernel else None)
    context.terms = context.terms._replace(options=options)
    context.turn_to(source, SeedBook(None, weight=context.seeds.weight))
    with ReferenceTimer(context) as timer:
        outcome = judge(context, timer, Stopwatch(Silent()))
    assert outcome.status not in (Status.CORRECT, Status.INFRA_ERROR), outcome
