"""Documents of the Unix socket's door, and the identity in which the ready judge and a client must agree.

A difference could change a grade. Runners and compilers have a separate, fixed environment. The judge reads the
variables below: the variables select GPUs, compilers, libraries and the number of threads.
"""

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from evaluator.batch.workers.messages import GradeFinished, NotGraded, StageEntered, WorkerOrder
from evaluator.paths import cache_folder
from evaluator.records import DeviceKind, Record
from evaluator.version import __version__

_PACKAGE = Path(__file__).resolve().parents[1]
_NAMES = frozenset({"CXX", "LIBRARY_PATH", "PYTHONPATH", "TMPDIR", "WARPGRADE_CACHE_LIMIT"})
_PREFIXES = (
    *("ATEN_", "CUBLAS", "CUDA_", "CUDNN_", "GOMP_", "KMP_", "LD_", "MKL_", "NVIDIA_", "OMP_", "OPENBLAS_"),
    *("PYTORCH_", "TORCH", "TRITON_"),
)
_TOOLS = ("g++", "c++", "nvcc", "ncu", "ninja")
_SHOWN = 3


class Identity(Record, frozen=True):
    """Version and files of Warpgrade, and the settings of the judge's process and machine."""

    version: str
    code: str
    settings: dict[str, str]


def identity() -> Identity:
    """Return the identity of the current process. Takes milliseconds."""
    return Identity(version=__version__, code=_code(), settings=_settings(os.environ))


def difference(server: Identity, client: Identity) -> str | None:
    """Return why a server cannot grade for a client; None if both agree.

    >>> same = Identity("1", "a", {"cores": "0 1"})
    >>> difference(same, same)
    >>> difference(same, Identity("1", "a", {"cores": "0 1", "CUDA_VISIBLE_DEVICES": "1"}))
    'the ready judge was started with another CUDA_VISIBLE_DEVICES'
    >>> difference(same, Identity("2", "a", {}))
    'the ready judge is of another version: restart it'
    """
    if (server.version, server.code) != (client.version, client.code):
        return "the ready judge is of another version: restart it"
    names = sorted(server.settings.keys() | client.settings.keys())
    differing = [name for name in names if server.settings.get(name) != client.settings.get(name)]
    if not differing:
        return None
    more = f" and {len(differing) - _SHOWN} more settings" if len(differing) > _SHOWN else ""
    return f"the ready judge was started with another {', '.join(differing[:_SHOWN])}{more}"


def _code() -> str:
    """Return a text that changes with every change of the package: from the folder, and size and time of each file.

    Reading the contents instead would take a tenth of a second.
    """
    stamps = [(path, status.st_size, status.st_mtime_ns) for path, status in _files(str(_PACKAGE))]
    import hashlib

    return f"{_PACKAGE} {hashlib.sha256(repr(sorted(stamps)).encode('utf-8', 'surrogatepass')).hexdigest()}"


def _files(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                yield entry.path, entry.stat(follow_symlinks=False)
            elif entry.name != "__pycache__":
                yield from _files(entry.path)


def _settings(environment: Mapping[str, str]) -> dict[str, str]:
    variables = {name: value for name, value in environment.items() if name in _NAMES or name.startswith(_PREFIXES)}
    tools = {f"{tool} on PATH": shutil.which(tool) or "" for tool in _TOOLS}
    machine = {
        "Python": f"{sys.prefix} {sys.version}",
        "cache folder": str(cache_folder().absolute()),
        "cores": " ".join(map(str, sorted(os.sched_getaffinity(0)))),
    }
    return {**variables, **tools, **machine}


HELLO, GRADES, STATUS, STOP = "/v1/hello", "/v1/grades", "/v1/status", "/v1/stop"
MOST_REQUEST_BYTES = 32 << 20
"""A problem, a submission and another submission of 1 MiB each, escaped in JSON."""
MOST_REPLY_BYTES = 256 << 20


class Hello(Record, frozen=True):
    """Question whether the judge grades on `device` for a client with this identity."""

    identity: Identity
    device: DeviceKind


class Welcome(Record, frozen=True):
    """Server's consent. `at_once` is the number of concurrent grades on the device."""

    pid: int
    at_once: int


class LocalOrder(Record, frozen=True):
    """Order of a grade, by a client with this identity."""

    identity: Identity
    order: WorkerOrder


class Stopping(Record, frozen=True):
    """Server's consent to end. The end of the process releases the lock of the socket's folder."""

    pid: int


Answer = StageEntered | GradeFinished | NotGraded
answers: msgspec.json.Decoder[Answer] = msgspec.json.Decoder(Answer)
