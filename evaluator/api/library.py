"""Grade submissions from a program, on persistent workers.

from warpgrade import Candidate, grade_many, rewards

cards = grade_many([Candidate("relu", source) for source in sources], require_own_kernel=0.6)
paid = [rewards.speedup(card) for card in cards]    # None after a failure of the machine
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any

from evaluator.api.any_grader import OnProgress
from evaluator.api.candidate import Candidate, submission_of, task_for
from evaluator.api.grader import Grader
from evaluator.api.ready import places
from evaluator.api.scorecard import Scorecard
from evaluator.batch.grading_setup import Setup, setup_for
from evaluator.batch.runs.problems import ProblemText
from evaluator.batch.runs.tasks import Task
from evaluator.batch.workers.infra_card import infra_card
from evaluator.batch.workers.messages import Graded
from evaluator.batch.workers.worker_handle import Hire
from evaluator.batch.workers.worker_pool import Drained, Ended, WorkerPool
from evaluator.grade_options import entry_given, with_options
from evaluator.grading.resolved_request import remarked
from evaluator.signatures.signing import signed


@with_options
def grade(
    problem: str | ProblemText, source: str | Path | None, *, ready: bool | None = None, **options: Any
) -> Scorecard:
    """Grade a submission in a separate process, or by the ready judge.

    Args:
        problem: the name or the text of a problem.
        source: Python text that defines ModelNew, a language model's answer with the code, or the `Path` of a file or
            of a folder with a submission.toml; None counts as empty.
        ready: see `Grader`.
        **options: see `GradeOptions`.

    Returns:
        The scorecard. The status is `infra_error` after a failure of the machine.

    Raises:
        TypeError: the name of an option is unknown, or the source is not text.
        ProblemNotFound: no problem has the name.
        UsageError: the value of an option is invalid.
        InfraError: the machine has no GPU.
    """
    candidate = Candidate(problem, source)
    submission = submission_of(candidate, entry_given(options)) if isinstance(source, str | Path) else None
    setup = setup_for(options, jobs=1, submission=submission)
    slots, hire = places(setup.options, setup.slots, jobs=1, ready=ready)
    graded = _graded(iter([candidate]), setup._replace(slots=slots), hire)
    with contextlib.closing(graded):
        return next(graded)[1]


@with_options
def grade_many(
    candidates: Iterable[Candidate],
    *,
    jobs: int | None = None,
    ready: bool | None = None,
    on_progress: OnProgress | None = None,
    **options: Any,
) -> list[Scorecard]:
    """Grade candidates concurrently. Return the cards in the order of the candidates; see `Grader.grade_many`.

    `jobs` is the number of concurrent grades; None takes the limit of the device. `ready` is as for `Grader`.
    `on_progress` is called with a `Progress` after each grade. Options and errors are the same as for `grade`.
    """
    with Grader(jobs=jobs, ready=ready, **options) as grader:
        return grader.grade_many(candidates, on_progress=on_progress)


@with_options
def grade_stream(
    candidates: Iterable[Candidate], *, jobs: int | None = None, ready: bool | None = None, **options: Any
) -> Generator[tuple[Candidate, Scorecard], None, None]:
    """Grade candidates concurrently. Yield each candidate with the card, in order of completion.

    Another thread takes a candidate from the iterable whenever a worker becomes free. Every candidate is graded,
    even a duplicate; builds are cached. Closing the iterator ends all workers at once. `jobs` is the number of
    concurrent grades; None takes the limit of the device. `ready` is as for `Grader`. Options and errors are the same
    as for `grade`.
    """
    setup = setup_for(options, jobs)
    slots, hire = places(setup.options, setup.slots, jobs=jobs, ready=ready)
    return _graded(iter(candidates), setup._replace(slots=slots), hire)


def _graded(
    candidates: Iterator[Candidate], setup: Setup, hire: Hire | None
) -> Generator[tuple[Candidate, Scorecard], None, None]:
    options, slots, problems, key, remarks = setup
    # By identity, because two tasks may be equal.
    candidate_of: dict[int, Candidate] = {}

    def next_task() -> Task | None:
        candidate = next(candidates, None)
        if candidate is None:
            return None
        task = task_for(candidate, problems)
        task = task._replace(submission=remarked(task.submission, remarks))
        candidate_of[id(task)] = candidate
        return task

    with WorkerPool(slots, options, next_task, hire=hire) as worker_pool:
        left = len(slots)
        while left:
            event = worker_pool.events.get()
            if isinstance(event, Ended):
                result = event.result
                if isinstance(result, Graded):
                    card = result.card
                else:
                    card = infra_card(event.task, options, result.reason, slots[event.slot], result.hint)
                yield candidate_of.pop(id(event.task)), Scorecard.of(signed(card, key))
            elif isinstance(event, Drained):
                left -= 1
                if event.error is not None:
                    raise event.error


@with_options
def grade_stream_async(
    candidates: Iterable[Candidate] | AsyncIterable[Candidate],
    *,
    jobs: int | None = None,
    ready: bool | None = None,
    **options: Any,
) -> AsyncGenerator[tuple[Candidate, Scorecard], None]:
    """Grade candidates like `grade_stream`, as an asynchronous iterator.

    Candidates may come from an asynchronous iterable; reading stays a few candidates ahead of the running grades.
    """
    return _graded_async(candidates, Grader(jobs=jobs, ready=ready, **options))


async def _graded_async(
    candidates: Iterable[Candidate] | AsyncIterable[Candidate], grader: Grader
) -> AsyncGenerator[tuple[Candidate, Scorecard], None]:
    async with grader:
        coming = _each(candidates)
        waiting: dict[asyncio.Future[Scorecard], Candidate] = {}
        more = True
        while more or waiting:
            while more and len(waiting) < grader.at_once:
                candidate = await anext(coming, None)
                if candidate is None:
                    more = False
                else:
                    future = grader.submit(candidate.problem, candidate.source, name=candidate.name)
                    waiting[asyncio.wrap_future(future)] = candidate
            if waiting:
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    yield waiting.pop(each), each.result()


async def _each(candidates: Iterable[Candidate] | AsyncIterable[Candidate]) -> AsyncIterator[Candidate]:
    if isinstance(candidates, AsyncIterable):
        async for candidate in candidates:
            yield candidate
    else:
        for candidate in candidates:
            yield candidate
