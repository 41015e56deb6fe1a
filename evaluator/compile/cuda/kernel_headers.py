"""Header libraries of kernels (CUTLASS, ThunderKittens): include folders and cache keys of builds."""

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from evaluator.cuda_source.source_files import all_files
from evaluator.findings import Code, finding
from evaluator.languages.by_text import included_headers
from evaluator.languages.language import Language, Mentions
from evaluator.languages.registry import HEADER_LIBRARIES, found_installation, install_command
from evaluator.protocol.frames import BuildRequest
from evaluator.records import Diagnostic, Finding

_NO_SUCH_FILE = re.compile(
    r"(?P<path>[\w./+-]{1,300}): No such file or directory|cannot open source file \"(?P<opened>[\w./+-]{1,300})\""
)


class KernelHeaders(NamedTuple):
    """Include folders of the header libraries in a request, and the state of the files in the folders."""

    folders: list[Path]
    states: list[str]


def kernel_headers(request: BuildRequest) -> KernelHeaders:
    """Return the installed header libraries in the sources of `request`."""
    libraries = [found_installation(language) for language in _libraries(_included(request))]
    folders = [folder for library in libraries if library is not None for folder in library.include_paths]
    return KernelHeaders(folders, [_state(folder) for folder in folders])


def missing_library(errors: Sequence[Diagnostic], request: BuildRequest) -> Finding | None:
    """Return the finding for a header of a missing library; None for any other errors.

    A header that the sources of `request` do not include, or with the name or folder of the submission's own headers,
    is the submission's error.
    """
    included = _included(request)
    for error in errors:
        match = _NO_SUCH_FILE.match(error.message) if error.severity == "error" else None
        path = None if match is None else match["path"] or match["opened"]
        if path not in included or _is_own(path, request):
            continue
        for language in _libraries(frozenset((path,))):
            if found_installation(language) is None:
                message = f"the header {path} of {language.title} is not installed: {install_command(language)}"
                package = language.toolchain.value
                return finding(Code.LANGUAGE_MISSING, message, line=error.submission_line, package=package)
    return None


def _included(request: BuildRequest) -> frozenset[str]:
    return frozenset().union(*(included_headers(file.text) for file in all_files(request)))


def _is_own(path: str, request: BuildRequest) -> bool:
    """Return whether the submission has a header of the same name, or a folder of the same name."""
    paths = [PurePosixPath(file.name) for file in all_files(request)]
    folders = {folder.name for file_path in paths for folder in file_path.parents}
    first, *below = PurePosixPath(path).parts
    return PurePosixPath(path).name in {file_path.name for file_path in paths} or (bool(below) and first in folders)


def _libraries(included: frozenset[str]) -> list[Language]:
    mentions = Mentions(frozenset(), included, has_kernel=True)
    return [language for language in HEADER_LIBRARIES if language.is_in(mentions)]


def _state(folder: Path) -> str:
    """Hash the names, sizes and modification times below a folder: reading a thousand headers takes too long."""
    digest = hashlib.sha256(str(folder).encode())
    for path, names, files in os.walk(folder):
        names.sort()
        for name in sorted(files):
            facts = os.lstat(os.path.join(path, name))  # noqa: PTH118 - a thousand files in ten milliseconds
            digest.update(f"{path}\0{name}\0{facts.st_size}\0{facts.st_mtime_ns}\n".encode())
    return digest.hexdigest()
