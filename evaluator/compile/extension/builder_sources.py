"""Source files that determine a build: part of every key, because another version may build another library."""

import functools
import hashlib
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[2]
_FOLDERS = ("compile", "cuda_source", "emulator", "toolchain")


def builder_sources() -> list[Path]:
    """List the files of all builders, of their readers of C++, and of the emulator: Python, headers and scripts."""
    paths = (path for folder in _FOLDERS for path in (_PACKAGE / folder).rglob("*"))
    return sorted(path for path in paths if path.is_file() and path.suffix != ".pyc")


@functools.cache
def builder_sha256() -> str:
    """Hash the names and contents of `builder_sources`."""
    digest = hashlib.sha256()
    for path in builder_sources():
        digest.update(path.relative_to(_PACKAGE).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
