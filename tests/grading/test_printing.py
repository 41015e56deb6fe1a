"""What a submission prints from Python, C and C++ is on its card, however its process ends."""

import pytest

from evaluator.findings import Code
from evaluator.records import Status
from tests.grading.harness import limit_s, module

C = ("import ctypes, os", "C, CXX = ctypes.CDLL(None), ctypes.CDLL('libstdc++.so.6')", "calls = []")
COUT = (
    # What `std::cout.write(text, size)` calls, with a buffer of its own as after sync_with_stdio(false).
    "CXX._ZNSt8ios_base15sync_with_stdioEb(False)",
    "def cout(text):",
    "    place = ctypes.addressof(ctypes.c_char.in_dll(CXX, '_ZSt4cout'))",
    "    CXX._ZNSo5writeEPKcl(ctypes.c_void_p(place), text, ctypes.c_long(len(text)))",
)


def test_c_and_cxx_print_in_every_call_of_a_failure(judged):
    wrong = (
        "calls.append(1); os.write(1, b'called\\n')",
        "C.printf(b'C: call %d\\n', len(calls))",
        "cout(b'C++: call %d\\n' % len(calls))",
    )
    outcome = judged(module(*C, *COUT, forward=[*wrong, "print('Python')", "return x if len(calls) > 2 else x.relu()"]))
    assert outcome.status is Status.WRONG_RESULT
    lines = outcome.output.text.splitlines()
    made = lines.count("called")  # Written by the call itself, through no buffer.
    assert made == lines.count("Python") >= 3
    for language in ("C", "C++"):
        assert [line for line in lines if line.startswith(f"{language}: ")] == [
            f"{language}: call {number}" for number in range(1, made + 1)
        ]


@pytest.mark.parametrize(
    ("end", "status"),
    [("os.abort()", Status.RUNTIME_ERROR), ("os._exit(0)", Status.RUNTIME_ERROR), ("while True: pass", Status.TIMEOUT)],
)
def test_a_first_call_that_ends_the_process_has_printed(judged, end, status):
    printed = ["C.printf(b'from C\\n')", "print('from Python')", end]
    outcome = judged(module(*C, forward=printed), timeout_s=limit_s(status))
    assert outcome.status is status
    assert outcome.output.text == "from C\nfrom Python\n"


@pytest.mark.long
def test_a_flush_that_hangs_or_raises_delays_nothing_for_long(judged):
    hanging = "sys.stdout = type('Hanging', (), {'flush': lambda _: calls.append(1) or len(calls) < 4 or wait()})()"
    wait = ("import sys, time", "def wait():", "    time.sleep(3600)")
    # The call is made again, and getting ready for that takes as long as a call may.
    outcome = judged(module(*C, *wait, forward=["return x"], init=[hanging]), timeout_s=5.0)
    assert outcome.status is Status.WRONG_RESULT
    assert outcome.reason.code == Code.WRONG_VALUES.value


def test_a_failures_screen_shows_what_was_printed_without_its_control_sequences(grade):
    run = grade(module(*C, forward=["C.printf(b'\\x1b[2Jcleared \\x07\\n')", "return x"]))
    run.assert_verdict(Status.WRONG_RESULT, Code.WRONG_VALUES)
    assert "\x1b" not in run.out
    assert "  │ \\x1b[2Jcleared \\x07\n" in run.out
