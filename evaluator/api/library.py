"""Grade submissions from a program, on persistent workers.

from warpgrade import Candidate, grade_many, rewards

cards = grade_many([Candidate("relu", source) for source in sources], require_own_kernel=0.6)
paid = [rewards.speedup(card) for card in cards]    # None after a failure of the machine
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Generator, Iterable
from pathlib import Path
from typing import Any

from evaluator.api.any_grader import OnProgress
from evaluator.api.candidate import Candidate, submission_of
from evaluator.api.grader import Grader
from evaluator.api.scorecard import Scorecard
from evaluator.batch.runs.problems import ProblemText
from evaluator.grade_options import entry_given, with_options
from evaluator.grading.resolved_request import options_for


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
    submission = submission_of(Candidate(problem, source), entry_given(options))
    chosen, remarks = options_for(options, submission)
    with Grader(jobs=1, ready=ready, **{**options, "device": chosen.device}) as grader:
        return grader.submit_with(problem, source, remarks=remarks).result()


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

    Candidates are read as by `Grader.grade_stream`. Every candidate is graded, even a duplicate; builds are cached.
    Closing the iterator ends all workers at once. `jobs` is the number of concurrent grades; None takes the limit of
    the device. `ready` is as for `Grader`. Options and errors are the same as for `grade`.
    """
    return _streamed(candidates, Grader(jobs=jobs, ready=ready, **options))


def _streamed(candidates: Iterable[Candidate], grader: Grader) -> Generator[tuple[Candidate, Scorecard], None, None]:
    with grader:
        yield from grader.grade_stream(candidates)


@with_options
def grade_stream_async(
    candidates: Iterable[Candidate] | AsyncIterable[Candidate],
    *,
    jobs: int | None = None,
    ready: bool | None = None,
    **options: Any,
) -> AsyncGenerator[tuple[Candidate, Scorecard], None]:
    """Grade candidates like `grade_stream`, as an asynchronous iterator.

    Candidates may come from an asynchronous iterable. An ordinary iterable is read in the event loop's thread, and must
    not wait for the cards.
    """
    return _graded_async(candidates, Grader(jobs=jobs, ready=ready, **options))


async def _graded_async(
    candidates: Iterable[Candidate] | AsyncIterable[Candidate], grader: Grader
) -> AsyncGenerator[tuple[Candidate, Scorecard], None]:
    async with grader:
        coming, room = _as_async(candidates), asyncio.Semaphore(grader.at_once)

        async def next_candidate() -> Candidate | None:
            await room.acquire()
            return await anext(coming, None)

        # The future of the next candidate has no candidate yet.
        running: dict[asyncio.Future[Any], Candidate | None] = {asyncio.ensure_future(next_candidate()): None}
        try:
            while running:
                for future in (await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED))[0]:
                    candidate = running.pop(future)
                    if candidate is not None:
                        room.release()
                        yield candidate, future.result()
                    elif (candidate := future.result()) is not None:
                        running[asyncio.wrap_future(grader.submit_candidate(candidate))] = candidate
                        running[asyncio.ensure_future(next_candidate())] = None
        finally:
            for future in running:
                future.cancel()


async def _as_async(candidates: Iterable[Candidate] | AsyncIterable[Candidate]) -> AsyncIterator[Candidate]:
    if isinstance(candidates, AsyncIterable):
        async for candidate in candidates:
            yield candidate
    else:
        for candidate in candidates:
            yield candidate
