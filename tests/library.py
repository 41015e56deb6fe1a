"""Lists and streams of grades by workers of their own."""

from warpgrade import Grader


def grade_many(candidates, on_progress=None, **options):
    with Grader(**options) as grader:
        return grader.grade_many(candidates, on_progress=on_progress)


def grade_stream(candidates, **options):
    with Grader(**options) as grader:
        yield from grader.grade_stream(candidates)


async def grade_stream_async(candidates, **options):
    async with Grader(**options) as grader:
        stream = grader.grade_stream_async(candidates)
        try:
            async for each in stream:
                yield each
        finally:
            await stream.aclose()
