"""Submissions that take too much: memory, processes, output, or time after they said that they were done."""

import pytest

from evaluator.findings import Code
from evaluator.records import Status
from tests.grading.harness import CHECK, module


def test_a_flood_of_text_is_drained_and_remarked_upon(grade):
    flood = module("import os", "for _ in range(1 << 6): os.write(1, b'PASS all good\\n' * 75_000)")
    run = grade(flood, *CHECK)
    card = run.assert_verdict(Status.CORRECT)
    assert Code.OUTPUT_FLOOD in run.findings
    assert card.output.total_bytes >= 1 << 26
    assert len(card.output.text) < 40_000
    assert "bytes left out" in card.output.text
    assert "PASS" not in run.out


def test_a_memory_hog_runs_out_of_its_own_memory(grade):
    hog = module(
        forward=[
            "kept = []",
            "try:",
            "    while True: kept.append(torch.empty(1 << 28))",
            "finally:",
            "    print(len(kept))",
        ],
    )
    card = grade(hog).assert_verdict(Status.RUNTIME_ERROR, Code.OUT_OF_MEMORY)
    taken_gib = int(card.output.text)
    assert 0 < taken_gib <= card.sandbox.memory_bytes >> 30


def test_a_fork_bomb_ends_with_the_grade(grade):
    bomb = module("import os", forward=["while True:", "    try: os.fork()", "    except OSError: pass"])
    run = grade(bomb, timeout_s=2)
    assert (run.card.status, run.reason) in (
        (Status.TIMEOUT, Code.TIMED_OUT),
        (Status.RUNTIME_ERROR, Code.RUNNER_DIED),
    )


def test_processes_that_outlive_the_runner_are_killed(grade):
    daemon = module(
        "import os, signal, time",
        "if os.fork() == 0:",
        "    os.setsid()",
        "    for number in range(1, 64):",
        "        try: signal.signal(number, signal.SIG_IGN)",
        "        except (OSError, ValueError): pass",
        "    if os.fork() == 0:",
        "        while True: time.sleep(1)",
        "    os._exit(0)",
    )
    grade(daemon, *CHECK).assert_verdict(Status.CORRECT)


def test_a_thread_that_writes_into_old_outputs_is_no_reason_to_refuse(grade):
    spinning = module(
        "import threading",
        "outputs = []",
        "def spoil():",
        "    while True:",
        "        for y in outputs[:-1]: y.fill_(7.0)",
        "threading.Thread(target=spoil, daemon=True).start()",
        forward=["y = torch.relu(x)", "outputs.append(y)", "del outputs[:-2]", "return y"],
    )
    # Without times: a window compares the outputs of all its calls at its end, and none of them is old before.
    grade(spinning, *CHECK).assert_verdict(Status.CORRECT)


@pytest.mark.parametrize(
    ("returned", "verdict"),
    [
        ("{2**70: torch.relu(x)}", (Status.WRONG_RESULT, Code.WRONG_STRUCTURE)),
        ("{'\\ud800': torch.relu(x)}", (Status.RUNTIME_ERROR, Code.RUNNER_DIED)),
    ],
)
def test_what_a_message_cannot_carry_is_a_failure(judged, returned, verdict):
    outcome = judged(module(forward=[f"return {returned}"]))
    assert (outcome.status, Code(outcome.reason.code)) == verdict


def test_the_whole_grade_has_a_deadline(grade):
    """It comes while PyTorch is still imported; a card is written, and no process is left (`Grader` looks)."""
    run = grade(module(), "--deadline", "0.5")
    card = run.assert_verdict(Status.INFRA_ERROR, Code.DEADLINE)
    assert "after 0.5 s" in card.reason.message
