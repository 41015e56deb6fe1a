"""Server-sent events: each final grade of a client once, in the order of the ends.

The first event is `start` with the number of the last final grade. The id of each later event is the next number. A
client that reconnects with `Last-Event-ID` misses no event and receives none twice, also after a restart of the server.
"""

from collections.abc import AsyncIterator, Callable

import msgspec

from evaluator.records import Record
from evaluator.service.dispatcher import Dispatcher, until
from evaluator.service.documents.messages import Position
from evaluator.service.store.journal import Journal

BEAT_S = 15.0
"""Pause before a comment, the sign of a living connection for clients and proxies."""
_TOGETHER = 100


async def stream(
    journal: Journal, dispatcher: Dispatcher, client: str, after: int, is_valid: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """Yield the events after the number `after`.

    The stream ends with the server, with the validity of the token, and before a deleted event.
    """
    yield _event("start", after, Position(after))
    while not dispatcher.is_ending and is_valid():
        news = dispatcher.news(client)
        final = await journal.final_after(client, after, _TOGETHER)
        for number, grade in final:
            if number != after + 1:
                return
            after = number
            yield _event("grade", number, grade)
        if not final and not await until(news, BEAT_S):
            yield b": alive\n\n"


def _event(name: str, number: int, document: Record) -> bytes:
    return b"event: %s\nid: %d\ndata: %s\n\n" % (name.encode(), number, msgspec.json.encode(document))
