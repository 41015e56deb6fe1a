"""Windows on `cpu`: what a submission could do where calls follow each other, and what the judge sees of it.

On a busy machine a window is given up, so the tests here wait as long as it takes. Nothing goes by the clock.
"""

import os
import socket

import pytest

from evaluator.devices import handshake
from evaluator.findings import Code
from evaluator.judge import stages
from evaluator.judge.clock import host_windows
from evaluator.judge.integrity.precomputed_output import PrecomputedOutputCheck
from evaluator.judge.trial import answer_judge, host_window_loop, window_loop
from evaluator.records import Status
from tests.grading.conftest import judging
from tests.grading.harness import module

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="windows need two cores"),
]
LONG = 1e6

IN_WINDOWS = (
    "from evaluator.runner.host_windows import HostWindows",
    "make, state = HostWindows.answer, {'window': False}",
    "def answer(windows, sock, frame, calls):",
    "    state['window'] = not frame.calls[0].empty",
    "    try: return make(windows, sock, frame, calls)",
    "    finally: state['window'] = False",
    "HostWindows.answer = answer",
)
PLAIN = module(forward=["return torch.relu(x)"])
PUT_OFF = module(
    *IN_WINDOWS,
    "from evaluator.protocol import model_call",
    "waiting, readable = [], model_call.readable",
    "def work(result):",
    "    while waiting:",
    "        x, y = waiting.pop()",
    "        y.copy_(torch.relu(x))",
    "    return readable(result)",
    "model_call.readable = work",
    forward=[
        "if not state['window']: return torch.relu(x)",
        "waiting.append((x, torch.empty_like(x)))",
        "return waiting[-1][1]",
    ],
)
LAST_RESULT = module(
    *IN_WINDOWS,
    "last = []",
    forward=["last[:] = last if last and state['window'] else [torch.relu(x)]", "return last[0].clone()"],
)
ZEROS_READY = module(
    *IN_WINDOWS,
    "prepare = HostWindows.prepared",
    "def prepared(windows, frame, model, held):",
    "    calls = prepare(windows, frame, model, held)",
    "    if not frame.calls[0].empty:",
    "        windows._arena._library.warpgrade_arena_poison(0, 1 << 24)",  # All free memory holds zeros.
    "    return calls",
    "HostWindows.prepared = prepared",
    forward=[
        "if not state['window']: return torch.relu(x)",
        "y = torch.empty_like(x)",
        "some = x > 0",
        "y[some] = x[some]",
        "return y",
    ],
)
KEPT = module(
    "buffers, calls = [], []",
    forward=[
        "buffers[:] = buffers or [torch.empty_like(x) for _ in range(64)]",
        "calls.append(None)",
        "return buffers[len(calls) % 64].copy_(torch.relu(x))",
    ],
)
RAISES = module(*IN_WINDOWS, forward=["if state['window']: raise ValueError('in a window')", "return torch.relu(x)"])
EXITS = module(*IN_WINDOWS, "import os", forward=["if state['window']: os._exit(3)", "return torch.relu(x)"])
# Code of its own in place of the runner's: it takes every descriptor that it can get, and looks at what it reveals.
LOOKS_AHEAD = module(
    "import mmap, os, socket, struct, time",
    "from evaluator.devices.handshake import RunnerEnd",
    "original = RunnerEnd.answer",
    "def answer(end, number, ticket, base, slots, callables, *, bare):",
    "    if getattr(callables[0], 'func', None).__class__.__name__ != 'ModelNew':",
    "        return original(end, number, ticket, base, slots, callables, bare=bare)",
    "    sock, files, results = socket.socket(fileno=os.dup(number)), [], []",
    "    for k, call in enumerate(callables):",
    "        while (go := struct.unpack('<I', end._page[:4])[0]) not in (ticket + k, 2 ** 32 - 1): pass",
    "        if go == 2 ** 32 - 1: break",
    "        while True:",
    "            try: _, parts, _, _ = sock.recvmsg(1, socket.CMSG_LEN(4), socket.MSG_DONTWAIT)",
    "            except BlockingIOError: break",
    "            files += [struct.unpack('<i', data)[0] for _, _, data in parts]",
    "        if len(files) > k + 1: print('ahead', flush=True)",
    "        end._page[128:132] = bytes(4)",
    "        view, given = mmap.mmap(files[k], 0), call.args[0]",
    "        place = given.data_ptr() - base - slots[k][0]",
    "        x = torch.frombuffer(view, dtype=torch.float32, offset=place, count=given.numel()).view(given.shape)",
    "        results.append(torch.relu(x))",
    "        end._page[64:68] = struct.pack('<I', ticket + k)",
    "    return results",
    "RunnerEnd.answer = answer",
    forward=["return torch.relu(x)"],
)


@pytest.fixture(scope="module")
def judged(grader):
    """A context of its own: the timer of the reference keeps the handshake's time."""
    with judging(grader, windows=True) as run:
        yield run


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    monkeypatch.setattr(host_windows, "DISTURBED_MS", LONG)
    monkeypatch.setattr(host_window_loop, "_LONGEST_CALL_MS", LONG)
    monkeypatch.setattr(host_window_loop, "_LONGEST_S", LONG)
    monkeypatch.setattr(window_loop, "_WINDOWS", 3)
    monkeypatch.setattr(window_loop, "NARROW_WINDOWS", LONG)
    monkeypatch.setattr(host_window_loop, "_EMPTY_WINDOWS", 3)


def verdict(outcome):
    return outcome.status, None if outcome.reason is None else outcome.reason.code


def calls_of_windows(outcome):
    calls = []
    for side in (outcome.timing.reference_before, outcome.timing.submission, outcome.timing.reference_after):
        assert side.samples_ms == side.windows.call_ms
        assert max(side.windows.calls) <= 16
        calls += side.windows.calls
    return calls


def test_a_short_function_is_timed_in_windows(judged):
    outcome = judged(PLAIN)
    assert verdict(outcome) == (Status.CORRECT, None)
    calls = calls_of_windows(outcome)
    # Drawn for nine windows: equal once in 390,000 grades, and twice in a row never.
    assert len(set(calls)) > 1 or len(set(calls_of_windows(judged(PLAIN)))) > 1


def test_work_put_off_behind_the_last_call_is_seen(judged):
    assert verdict(judged(PUT_OFF)) == (Status.WRONG_RESULT, Code.LATE_OUTPUT.value)


def test_work_put_off_would_pass_if_nobody_looked_when_a_call_ends(judged, monkeypatch):
    monkeypatch.setattr(answer_judge, "late_on_host", lambda *_: None)
    outcome = judged(PUT_OFF)
    assert verdict(outcome) == (Status.CORRECT, None)
    assert outcome.timing.submission.windows is not None


def test_the_result_of_the_call_before_is_wrong(judged):
    status, code = verdict(judged(LAST_RESULT))
    assert status is Status.WRONG_RESULT
    assert code in {Code.WRONG_VALUES.value, Code.WRONG_ON_OTHER_VALUES.value}


def test_zeros_that_a_runner_prepares_in_a_window_are_seen(judged):
    assert verdict(judged(ZEROS_READY)) == (Status.WRONG_RESULT, Code.STOOD_BEFORE.value)


def test_prepared_zeros_would_pass_if_nobody_looked_before_a_release(judged, monkeypatch):
    monkeypatch.setattr(PrecomputedOutputCheck, "found", lambda *_: None)
    assert verdict(judged(ZEROS_READY)) == (Status.CORRECT, None)


def test_outputs_in_kept_memory_have_no_windows(judged):
    outcome = judged(KEPT)
    assert verdict(outcome) == (Status.CORRECT, None)
    assert outcome.timing.submission.windows is None
    assert outcome.timing.reference_before.windows is not None


def test_nothing_of_the_next_call_is_there_before_its_release(judged):
    outcome = judged(LOOKS_AHEAD)
    assert verdict(outcome) == (Status.CORRECT, None)
    assert "ahead" not in outcome.output.text


def test_the_next_call_would_be_there_if_inputs_were_revealed_together(judged, monkeypatch):
    release, of_submission = handshake.JudgeEnd.release, stages._timed_submission
    submission = []

    def together(end, number, descriptors, *others):
        if submission:
            with socket.socket(fileno=os.dup(number)) as sock:
                for each in descriptors:
                    socket.send_fds(sock, [b"\0"], [each])
        return release(end, number, descriptors, *others)

    def timed(*given):
        submission.append(None)
        try:
            return of_submission(*given)
        finally:
            submission.clear()

    monkeypatch.setattr(stages, "_timed_submission", timed)
    monkeypatch.setattr(handshake.JudgeEnd, "release", together)
    assert "ahead" in judged(LOOKS_AHEAD).output.text


@pytest.mark.parametrize(
    ("source", "code"), [(RAISES, Code.FORWARD_FAILED), (EXITS, Code.RUNNER_DIED)], ids=["raises", "exits"]
)
def test_a_failure_in_a_window_is_the_submissions(judged, source, code):
    assert verdict(judged(source)) == (Status.RUNTIME_ERROR, code.value)
