"""A worker that grades in no time: the source says what comes of it, so batches can be tested without a compiler."""

import threading
import time
from collections import Counter

import msgspec

from evaluator.batch.workers.messages import GradeFinished, NotGraded, StageEntered
from evaluator.findings import Code, finding
from evaluator.records import DeviceFacts, Status
from evaluator.submission.read import Submission
from tests import cards

MADE = {
    "right": cards.card,
    "wrong": cards.wrong_card,
    "uncompiled": cards.uncompiled_card,
    "crashing": cards.crashed_card,
    "unread": cards.unread_card,
}


class FakeWorker:
    """Stands in for `LocalWorker`. A source `# right`, `# wrong` … is graded so; `# lost 2` is lost twice, then right;
    `# killed 1` is killed once.

    `# hanging` waits for an interrupt.
    """

    graded: Counter[str]
    started: list["FakeWorker"]
    lock = threading.Lock()

    def __init__(self, slot, log):
        self.slot, self.log = slot, log
        self.interrupted = threading.Event()
        self.closed = False
        self.prepared = []
        with self.lock:
            self.started.append(self)

    def grade(self, order, on_stage):
        source = "unread" if order.submission is None else order.submission.source
        with self.lock:
            self.graded[source] += 1
            attempt = self.graded[source]
        on_stage(StageEntered("build", ""))
        what, _, rest = source.removeprefix("# ").partition(" ")
        if what == "hanging":
            assert self.interrupted.wait(120)
            return NotGraded("the process that made the grade died", again=True)
        if what == "broken":
            return NotGraded("the problem is broken", again=False, hint="mend its get_inputs")
        if what == "lost" and attempt <= int(rest):
            return NotGraded("the process that made the grade died", again=True)
        if what == "infra" and attempt <= int(rest):
            failed = finding(Code.JUDGE_FAILED, "the disk is full")
            return GradeFinished(self._card(order, cards.card(status=Status.INFRA_ERROR, reason=failed, timing=None)))
        if what == "killed" and attempt <= int(rest):
            died = finding(Code.RUNNER_DIED, "it was ended by SIGKILL", signal="SIGKILL")
            return GradeFinished(self._card(order, cards.crashed_card(reason=died)))
        return GradeFinished(self._card(order, MADE.get(what, cards.card)()))

    def _card(self, order, made):
        problem = msgspec.structs.replace(
            made.problem, name=order.problem.name, level=order.problem.level, sha256=order.problem.sha256
        )
        device = DeviceFacts(kind=order.options.device, name="a processor")
        given = order.submission or order.unread
        submission = made.submission
        if order.submission is not None:
            submission = msgspec.structs.replace(submission, sha256=given.sha256, source=given.source)
        submission = msgspec.structs.replace(submission, name=given.name, origin=given.origin)
        required = order.options.require_own_kernel
        named = {"problem": problem, "submission": submission, "device": device, "required_own_kernel": required}
        return msgspec.structs.replace(made, **named)

    def prepare(self, request):
        with self.lock:
            self.prepared.append((self.slot, request.options))
        return True

    def interrupt(self):
        self.interrupted.set()

    def wait(self):
        assert self.interrupted.is_set()

    def close(self):
        self.interrupted.set()
        self.closed = True


def soon(condition):
    """Wait until a condition holds."""
    until_s = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.01)


def text_submission(source):
    """Return a text as a submission, as read from a file."""
    return Submission(
        name="mine",
        origin="mine.py",
        sha256="0" * 64,
        source=source,
        extracted_from_answer=False,
        line_offset=0,
        findings=(),
    )
