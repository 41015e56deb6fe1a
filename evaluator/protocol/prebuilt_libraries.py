"""Folder of libraries built earlier by the judge, for a process without a judge connection."""

import hashlib
import os
from pathlib import Path

import msgspec

from evaluator.protocol.frames import BuildReply, BuildRequest, Frame


class PrebuiltLibraries:
    """Replays the judge's earlier build replies; implements `extensions.BuildChannel`.

    The key of a request is the hash of all fields. A request without an earlier reply fails.
    """

    def __init__(self, folder: Path) -> None:
        """Store replies and libraries in `folder`."""
        self._folder = folder
        self._request_key = ""

    def put(self, request: BuildRequest, reply: BuildReply, library: bytes | None) -> None:
        """Store the reply to `request`, and the library of a successful build."""
        self._folder.mkdir(exist_ok=True)
        self._reply(_key(request)).write_bytes(msgspec.msgpack.encode(reply))
        if library is not None:
            self._library(_key(request)).write_bytes(library)

    def send(self, frame: Frame) -> None:
        """Accept a build request. Raises TypeError for any other frame."""
        if not isinstance(frame, BuildRequest):
            raise TypeError(f"no judge is here to answer a {type(frame).__name__}")
        self._request_key = _key(frame)

    def receive(self) -> BuildReply:
        """Return the reply to the last request; a failed build for an unknown request."""
        try:
            return msgspec.msgpack.decode(self._reply(self._request_key).read_bytes(), type=BuildReply)
        except FileNotFoundError:
            return BuildReply(ok=False, log="this was not built for the submission's profile, and no compiler is here")

    def take_descriptors(self) -> list[int]:
        """Return a descriptor of the last request's library. The caller closes the descriptor."""
        return [os.open(self._library(self._request_key), os.O_RDONLY | os.O_CLOEXEC)]

    def _reply(self, key: str) -> Path:
        return self._folder / f"{key}.reply"

    def _library(self, key: str) -> Path:
        return self._folder / f"{key}.so"


def _key(request: BuildRequest) -> str:
    return hashlib.sha256(msgspec.msgpack.encode(request, order="deterministic")).hexdigest()
