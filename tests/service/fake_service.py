"""The service with a judge that grades in the time that the submission names: `# 5 anything`, in ms.

    python -m tests.service.fake_service STATE PORT [NAME=VALUE …]

Each graded submission is a line of STATE/graded. `# broken` ends the workers; `# 5 deadly` kills the process; `# gated`
takes until there is a file STATE/gate.
"""

import contextlib
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from evaluator.api.grader import Grader
from evaluator.api.scorecard import Scorecard
from evaluator.errors import InfraError
from evaluator.records import Status
from evaluator.service import gate, http_door, server
from evaluator.service.http_door import Settings
from evaluator.service.server import Address, Program
from tests import cards

LIMITS = (
    ("head_s", server, "HEAD_S"),
    ("stall_s", server, "STALL_S"),
    ("connections", server, "MOST_CONNECTIONS"),
    ("connections", gate, "MOST_CONNECTIONS"),
    ("body_s", gate, "BODY_S"),
    ("large_bytes", gate, "LARGE_BYTES"),
)


class FakeGrading:
    """A grader without workers."""

    def __init__(self, state: Path, at_once: int) -> None:
        self.at_once = at_once
        self.failure = None
        self._real = Grader(device="emulated", ready=False)  # never started: it knows the problems
        self._gate = state / "gate"
        self._log = os.open(state / "graded", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._threads = ThreadPoolExecutor(at_once)
        self._made = cards.card(status=Status.CORRECT)  # its statistics take long

    def refusal_of(self, problem):
        return self._real.refusal_of(problem)

    def submit(self, problem, source, *, name):
        if source == "# unreadable":
            raise RecursionError("too deep")
        return self._threads.submit(self._card, problem, source, name)

    def infra_card(self, problem, source, *, name, reason):
        if source == "# 0 deadly card":
            os.kill(os.getpid(), signal.SIGKILL)
        return self._real.infra_card(problem, source, name=name, reason=reason)

    def _card(self, problem, source, name):
        time.sleep(int(source.split()[1]) / 1000 if source[:3].strip("# ").isdigit() else 0)
        while source.startswith("# gated") and not self._gate.exists():
            time.sleep(0.01)
        if "deadly" in source:
            os.kill(os.getpid(), signal.SIGKILL)
        os.write(self._log, source.replace("\n", " ").encode() + b"\n")
        if source == "# broken":
            self.failure = InfraError("no worker starts")
        made = self._made
        problem_name = problem if isinstance(problem, str) else problem.name
        return Scorecard.of(
            msgspec.structs.replace(
                made,
                problem=msgspec.structs.replace(made.problem, name=problem_name),
                submission=msgspec.structs.replace(made.submission, name=name, source=source),
            )
        )


def set_limits(set_attribute, named) -> None:
    """Set the limits of the server that `named` has."""
    for name, module, attribute in LIMITS:
        if name in named:
            set_attribute(module, attribute, type(getattr(module, attribute))(named[name]))
    given = {name: int(value) for name, value in named.items() if name in http_door.LIMITS._fields}
    set_attribute(http_door, "LIMITS", http_door.LIMITS._replace(**given))


@contextlib.contextmanager
def opened(state: Path, port: int, tell, named):
    """Open the door of the service with a fake judge."""

    @contextlib.contextmanager
    def grading():
        yield FakeGrading(state, int(named.get("at_once", 4)))

    settings = Settings(
        address=Address("127.0.0.1", port),
        state=state,
        tokens=state / "tokens",
        keep_days=1.0,
        allows_problem_text=named.get("problem_text") == "yes",
        most_waiting=int(named["most_waiting"]) if "most_waiting" in named else None,
    )
    with http_door.http_door(settings, grading, tell) as door:
        yield door


def main() -> None:
    named = dict(each.split("=") for each in sys.argv[3:])
    set_limits(setattr, named)

    def tell(line):
        print(line, file=sys.stderr, flush=True)

    try:
        with opened(Path(sys.argv[1]), int(sys.argv[2]), tell, named) as door:
            Program(door, tell).run()
    except InfraError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
