"""Limits on sums over the fields of a frame, checked before any use of the frame."""

from collections.abc import Iterator

import msgspec

from evaluator.protocol.frames import BuildRequest, DictItems, Items, Node
from evaluator.protocol.frames.bounds import MOST_DEPTH, MOST_FLAG_BYTES, MOST_NODES, MOST_SOURCE_BYTES, total_bytes

_decoder = msgspec.msgpack.Decoder(BuildRequest)


def oversized_answer(node: Node) -> str | None:
    """Return the violated limit of an answer's tree; None within all limits."""
    nodes = 0
    level = [node]
    for _ in range(MOST_DEPTH + 1):
        nodes += len(level)
        if nodes > MOST_NODES:
            return f"an answer of more than {MOST_NODES} values"
        level = [item for parent in level if isinstance(parent, Items | DictItems) for item in parent.items]
        if not level:
            return None
    return f"an answer that is nested more than {MOST_DEPTH} deep"


def oversized_request(request: BuildRequest) -> str | None:
    """Return the violated limit of a build request; None within all limits.

    >>> oversized_request(BuildRequest(name="x", extra_cflags=["-D" + 4000 * "x"] * 9))
    'more than 32 KiB of flags'
    """
    if total_bytes(_flags(request)) > MOST_FLAG_BYTES:
        return f"more than {MOST_FLAG_BYTES >> 10} KiB of flags"
    if text_bytes(request) > MOST_SOURCE_BYTES:
        return f"more than {MOST_SOURCE_BYTES >> 20} MiB of sources"
    return None


def text_bytes(request: BuildRequest) -> int:
    """Return the size in bytes of all request texts that become files."""
    return total_bytes(_texts(request))


def unsendable_request(request: BuildRequest) -> str | None:
    """Return why the judge would refuse a request: a field or the request exceeds its limit, or invalid Unicode."""
    try:
        _decoder.decode(msgspec.msgpack.encode(request))
    except msgspec.DecodeError as error:
        return str(error)
    except UnicodeEncodeError:
        return "a text that is no Unicode"
    return oversized_request(request)


def _flags(request: BuildRequest) -> Iterator[str]:
    for flags in (
        request.extra_cflags,
        request.extra_cuda_cflags,
        request.extra_ldflags,
        request.extra_include_paths,
    ):
        yield from flags


def _texts(request: BuildRequest) -> Iterator[str]:
    yield from request.cpp_sources
    yield from request.cuda_sources
    for file in (*request.files, *request.headers):
        yield file.name
        yield file.text
    for function, description in (request.functions or {}).items():
        # The generated bindings contain each function's name three times.
        yield from (function, function, function, description)
