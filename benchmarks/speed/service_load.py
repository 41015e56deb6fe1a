"""What the HTTP service adds to the library's grades, on one machine in one run.

    python -m benchmarks.speed.service_load [--device cpu] [--grades 30] [--clients 50] [--submissions 2000]
                                            [--json FILE]

Two parts:

- `one`: grades of a trivial submission on a device, one after another, by the library and by the service in turn. Both
  sides have workers of their own, and the problem's context is made beforehand. Beside the times of both sides:
  `overhead_ms` is the time of a grade by the service without the time inside its library, from submission to card, as
  the service itself measures on the same grade. So the spread of the judge's own times is not in the overhead.
- `load`: the same request by many clients with a token each, against a judge that returns a card at once. `overhead_ms`
  of a closed loop with a grade at a time on each of 4 clients; then the rate of all submissions together.

Every grade is checked: its card must name its submission.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from evaluator.api.grader import Grader
from evaluator.api.scorecard import Scorecard
from evaluator.service.http_door import Settings, http_door
from evaluator.service.server import Address, Program
from evaluator.service.tokens import add_token
from warpgrade import Candidate, RemoteGrader

SOURCE = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n"
PROBLEM = "relu"
_LOOPS = 4
_SETTLE_S = 2.0
"""Pause before each grade: after a card, a worker starts the processes of the next grade."""


class Timed:
    """A grader that notes the time of each grade, by the name of the submission."""

    def __init__(self, grader: Grader, spans_s: dict[str, float]) -> None:
        self._grader = grader
        self._spans_s = spans_s
        self.at_once = grader.at_once
        self.failure = None
        self.refusal_of = grader.refusal_of
        self.infra_card = grader.infra_card

    def submit(self, problem: Any, source: str | None, *, name: str) -> Future[Scorecard]:
        """Submit to the grader."""
        started_s = time.monotonic()
        future = self._grader.submit(problem, source, name=name)
        future.add_done_callback(lambda _: self._spans_s.__setitem__(name, time.monotonic() - started_s))
        return future


class Instant:
    """A judge that returns a card at once, made from a real card."""

    def __init__(self, card: Scorecard) -> None:
        self._card = card
        self.at_once = 64
        self.failure = None

    def refusal_of(self, _problem: Any) -> None:
        """Accept every problem."""

    def submit(self, _problem: Any, _source: str | None, *, name: str) -> Future[Scorecard]:
        """Return the card with the name of the submission."""
        from msgspec.structs import replace

        future: Future[Scorecard] = Future()
        future.set_result(replace(self._card, submission=replace(self._card.submission, name=name)))
        return future

    def infra_card(self, _problem: Any, _source: str | None, *, name: str, reason: str) -> Scorecard:
        """Fail: every grade ends at the first attempt."""
        raise RuntimeError(f"{name}: {reason}")


def main() -> int:
    """Measure, and print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "emulated"], default="cpu")
    parser.add_argument("--grades", type=int, default=30)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--submissions", type=int, default=2000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    result: dict[str, Any] = {"cores": len(os.sched_getaffinity(0)), "load_1_minute": os.getloadavg()[0]}
    card, result["one"] = judged(options.device, options.grades)
    result["load"] = loaded(card, options.clients, options.submissions)
    text = json.dumps(result, indent=1)
    if options.json is not None:
        options.json.write_text(text + "\n")
    print(text)
    return 0


def judged(device: str, grades: int) -> tuple[Scorecard, dict[str, Any]]:
    """Compare library and service with a real judge; return a card too."""
    with (
        Grader(device=device, jobs=1, ready=False) as library,
        served(judge_of(device), ["bench"]) as (url, (token,), spans),
    ):
        with RemoteGrader(url, token) as service:
            card = library.grade(PROBLEM, SOURCE)
            service.grade(PROBLEM, SOURCE)
            library_s, service_s = [], []
            for number in range(grades):
                name = f"one-{number}"
                for grader, times_s in ((library, library_s), (service, service_s)):
                    time.sleep(_SETTLE_S)
                    times_s.append(timed(lambda grader=grader, name=name: graded(grader, name)))
        inside_s = spans()
    overheads_s = [whole - inside_s[f"one-{number}"] for number, whole in enumerate(service_s)]
    one = {"library_ms": summary(library_s), "service_ms": summary(service_s), "overhead_ms": summary(overheads_s)}
    return card, one


def loaded(card: Scorecard, clients: int, submissions: int) -> dict[str, Any]:
    """Measure the service alone: closed loops, then all submissions of all clients together."""
    names = [f"client-{number}" for number in range(clients)]
    with served(lambda _: contextlib.nullcontext(Instant(card)), names) as (url, tokens, _):
        graders = [RemoteGrader(url, token).start() for token in tokens]
        try:
            times_s: list[float] = []

            def loop(grader: RemoteGrader, number: int) -> None:
                names = [f"loop-{number}-{each}" for each in range(submissions // 10 // _LOOPS)]
                times_s.extend(timed(lambda name=name: graded(grader, name)) for name in names)

            in_threads([lambda n=n: loop(graders[n], n) for n in range(_LOOPS)])
            share = submissions // clients

            def together(grader: RemoteGrader, number: int) -> None:
                candidates = [Candidate(PROBLEM, SOURCE, f"all-{number}-{each}") for each in range(share)]
                named(grader.grade_many(candidates), candidates)

            whole_s = timed(lambda: in_threads([lambda n=n: together(graders[n], n) for n in range(clients)]))
        finally:
            in_threads([grader.close for grader in graders])
    return {
        "loops": _LOOPS,
        "overhead_ms": summary(times_s),
        "clients": clients,
        "submissions": share * clients,
        "grades_per_s": round(share * clients / whole_s, 1),
        "requests_per_s": round(2 * share * clients / whole_s, 1),
    }


@contextlib.contextmanager
def served(
    judge: Callable[[dict[str, float]], Any], clients: Sequence[str]
) -> Iterator[tuple[str, list[str], Callable[[], dict[str, float]]]]:
    """Run the service in a process. Yield its address, tokens, and a function for the times inside its library."""
    with tempfile.TemporaryDirectory(prefix="service-load-") as folder:
        state = Path(folder)
        tokens = [add_token(state / "tokens", client) for client in clients]
        here, there = multiprocessing.Pipe()
        process = multiprocessing.get_context("fork").Process(target=_serve, args=(state, judge, there))
        process.start()
        try:
            yield here.recv(), tokens, lambda: _ask(here)
        finally:
            process.terminate()
            process.join()


def _serve(state: Path, judge: Callable[[dict[str, float]], Any], there: Connection) -> None:
    spans_s: dict[str, float] = {}

    def tell(line: str) -> None:
        if " listens on " in line:
            there.send(line.split(" listens on ")[1].partition(";")[0])

    threading.Thread(target=lambda: there.send((there.recv(), dict(spans_s))[1]), daemon=True).start()
    settings = Settings(Address("127.0.0.1", 0), state, state / "tokens", keep_days=1.0, allows_problem_text=False)
    with http_door(settings, lambda: judge(spans_s), tell) as door:
        Program(door, tell).run()


def _ask(here: Connection) -> dict[str, float]:
    here.send(None)
    return here.recv()


def judge_of(device: str) -> Callable[[dict[str, float]], Any]:
    """Return a function that makes the service's grader on a device."""

    @contextlib.contextmanager
    def judge(spans_s: dict[str, float]) -> Iterator[Timed]:
        with Grader(device=device, jobs=1, ready=False) as grader:
            yield Timed(grader, spans_s)

    return judge


def graded(grader: Grader | RemoteGrader, name: str) -> None:
    """Grade, and check that the card is of this submission."""
    named([grader.grade(PROBLEM, SOURCE, name=name)], [Candidate(PROBLEM, SOURCE, name)])


def named(cards: Sequence[Scorecard], candidates: Sequence[Candidate]) -> None:
    """Raise RuntimeError unless each card is correct and names its submission."""
    if [(card.correct, card.submission.name) for card in cards] != [(True, each.name) for each in candidates]:
        raise RuntimeError("a card is missing, wrong, or of another submission")


def in_threads(works: Sequence[Callable[[], object]]) -> None:
    """Run functions in threads. Raises RuntimeError if one fails."""
    failed: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - reported below
            failed.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise RuntimeError(f"{len(failed)} clients failed") from failed[0]


def timed(work: Callable[[], object]) -> float:
    """Return the wall time of a function in seconds."""
    started_s = time.monotonic()
    work()
    return time.monotonic() - started_s


def summary(times_s: Sequence[float]) -> dict[str, float]:
    """Return median, 99th percentile and maximum in milliseconds."""
    ordered = sorted(each * 1e3 for each in times_s)
    p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    return {"median": round(statistics.median(ordered), 2), "p99": round(p99, 2), "max": round(ordered[-1], 2)}


if __name__ == "__main__":
    sys.exit(main())
