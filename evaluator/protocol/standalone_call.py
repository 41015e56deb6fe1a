"""Parameters of a submission run without a judge: written by the judge, read by `evaluator.runner.standalone`."""

import hashlib
import os
from pathlib import Path

import msgspec

from evaluator.protocol.frames import BuildReply, BuildRequest, Frame
from evaluator.protocol.frames.values import ModelMode


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


FAILED = "warpgrade: the call failed: "
"""Prefix of the single line printed on failure."""
_ORDER_FILE = "order.msgpack"
_LIBRARIES_FOLDER = "libraries"


class LoneCall(msgspec.Struct, frozen=True, kw_only=True):
    """Call of a submission: source texts of submission and reference (`model`), and construction parameters.

    `mode` is the submission's; in evaluation, also the reference's. `tf32` controls TF32 for fp32 matrix products.
    `seed` seeds the inputs only, and no grade uses the seed otherwise.
    """

    submission: str
    model: str
    entries: list[str]
    weight_seed: int
    seed: int
    mode: ModelMode
    backward: bool
    tf32: bool
    threads: int


def lay_out(folder: Path, call: LoneCall) -> PrebuiltLibraries:
    """Write `call` into `folder`, and return the library folder for the needed libraries."""
    (folder / _ORDER_FILE).write_bytes(msgspec.msgpack.encode(call))
    return libraries_in(folder)


def read_back(folder: Path) -> LoneCall:
    """Read the call written by `lay_out`."""
    return msgspec.msgpack.decode((folder / _ORDER_FILE).read_bytes(), type=LoneCall)


def libraries_in(folder: Path) -> PrebuiltLibraries:
    """Return the library folder inside `folder`."""
    return PrebuiltLibraries(folder / _LIBRARIES_FOLDER)
