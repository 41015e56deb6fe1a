"""Libraries that the judge had built, laid out in a folder: for a process that has no judge to ask."""

import hashlib
import os
from pathlib import Path

import msgspec

from evaluator.protocol.frames import BuildReply, BuildRequest, Frame


class Shelf:
    """Answers build requests as the judge's desk answered them earlier; an `extensions.BuildChannel`.

    A request is known by the hash of all that is in it, so what was not asked for then is not here now.
    """

    def __init__(self, folder: Path) -> None:
        """Keep replies and libraries in `folder`."""
        self._folder = folder
        self._asked = ""

    def put(self, request: BuildRequest, reply: BuildReply, library: bytes | None) -> None:
        """Lay out the answer to `request`: the reply, and the library where it was built."""
        self._folder.mkdir(exist_ok=True)
        self._reply(_key(request)).write_bytes(msgspec.msgpack.encode(reply))
        if library is not None:
            self._library(_key(request)).write_bytes(library)

    def send(self, frame: Frame) -> None:
        """Take a build request. Raises TypeError for any other frame."""
        if not isinstance(frame, BuildRequest):
            raise TypeError(f"nobody is here to answer a {type(frame).__name__}")
        self._asked = _key(frame)

    def receive(self) -> BuildReply:
        """Answer the last request; what was never built comes back as a build that failed."""
        try:
            return msgspec.msgpack.decode(self._reply(self._asked).read_bytes(), type=BuildReply)
        except FileNotFoundError:
            return BuildReply(ok=False, log="this was not built for the submission's profile, and no compiler is here")

    def take_descriptors(self) -> list[int]:
        """Open the library of the last request; the caller closes it."""
        return [os.open(self._library(self._asked), os.O_RDONLY | os.O_CLOEXEC)]

    def _reply(self, key: str) -> Path:
        return self._folder / f"{key}.reply"

    def _library(self, key: str) -> Path:
        return self._folder / f"{key}.so"


def _key(request: BuildRequest) -> str:
    return hashlib.sha256(msgspec.msgpack.encode(request, order="deterministic")).hexdigest()
