"""Answers to messages that are no requests: the package `mcp` reads past these, and the client waits for ever.

A message is one line of JSON. Half of a surrogate pair, deep nesting, and a cut line all have an answer,
with the id of the request where the line shows one.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Self

PARSE_ERROR, INVALID_REQUEST = -32700, -32600
_MOST_MESSAGE = 300
_MOST_ID = 200
_LARGEST = 1 << 63
# Each alternative takes as much as it can and gives nothing back: the time is linear in the length of a line.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"?|[{}\[\]:,]|[^\s{}\[\]:,"]++', re.DOTALL)


def id_in(line: str) -> str | int | None:
    r"""Return the id of a request, which may be no valid JSON; None if the line shows no request with an id.

    Only members of the outermost object count: the source of a submission may have an "id" too.

    >>> id_in('{"id": 7, "method": "tools/call", "params": {"id": 8, "source": "\\ud800 {"}}')
    7
    """
    depth, request_id, is_request = 0, None, False
    before, name = "", ""
    for match in _TOKEN.finditer(line):
        piece = match.group()
        if piece in "{[":
            depth += 1
        elif piece in "}]":
            depth -= 1
        elif depth == 1 and before == ":" and name == '"id"' and request_id is None:
            request_id = _id(piece)
        elif depth == 1 and piece == ":":
            name = before
            is_request = is_request or name == '"method"'
        before = piece
    return request_id if is_request else None


def id_of(message: Mapping[str, object]) -> str | int | None:
    """Return the id of a message that is no answer; None without an id that an answer may repeat."""
    return None if message.keys() & {"result", "error"} else _valid(message.get("id"))


def _id(text: str) -> str | int | None:
    try:
        return _valid(json.loads(text)) if len(text) <= _MOST_ID else None
    except ValueError:
        return None


def _valid(value: object) -> str | int | None:
    match value:
        case bool():
            return None
        case int() if abs(value) < _LARGEST:
            return value
        case str() if value.isascii():
            return value
        case _:
            return None


class Door:
    """The stream of a client's messages, without those that are no requests: these are answered at once."""

    def __init__(self, incoming: Any, outgoing: Any) -> None:
        """Read from the stream `incoming` of the package `mcp`, and answer into its stream `outgoing`."""
        self._incoming = incoming
        self._outgoing = outgoing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._incoming, name)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        while isinstance(item := await self._incoming.__anext__(), Exception):
            if (refusal := _refusal(item)) is not None:
                await self._outgoing.send(refusal)
        return item


def _refusal(error: Exception) -> Any:
    """Return the answer to a line that the package could not read, from its `ValidationError`; None if blank."""
    from mcp import types
    from mcp.shared.message import SessionMessage

    details = error.errors() if hasattr(error, "errors") else []
    line = next((detail["input"] for detail in details if detail["type"] == "json_invalid"), None)
    if line is not None and not line.strip():
        return None
    if line is not None:
        code, request, cause = PARSE_ERROR, id_in(line), f"the message is no JSON: {details[0]['msg']}"
    else:
        body: dict[str, object] = next((detail["input"] for detail in details if detail["type"] == "missing"), {})
        code, request, cause = INVALID_REQUEST, id_of(body), "the message is no JSON-RPC request"
    message = f"{cause[:_MOST_MESSAGE]}. Send one JSON-RPC request a line, in UTF-8 and without lone surrogates."
    return SessionMessage(
        types.JSONRPCError(jsonrpc="2.0", id=request, error=types.ErrorData(code=code, message=message))
    )
