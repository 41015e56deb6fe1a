"""KernelBench's files, from the public repository or a clone: each file is checked by its hash."""

import hashlib
import http.client
import tarfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO

from evaluator.catalog.kernelbench import problem_files, problem_name, shipped_small_sizes
from evaluator.catalog.text import MAX_FILE_BYTES, read_bytes
from evaluator.errors import InfraError, ProblemError, UsageError
from evaluator.files.card_files import write_whole

REPOSITORY = "https://github.com/ScalingIntelligence/KernelBench"
COMMIT = "423217d9fda91e0c2d67e4a43bf62f96f6d104f1"
ARCHIVE = f"https://codeload.github.com/ScalingIntelligence/KernelBench/tar.gz/{COMMIT}"
_SCHEMES = ("https", "file")
_TIMEOUT_S = 30.0
_MOST_ARCHIVE_BYTES = 1 << 28
"""Limit of the unpacked archive, which has 3 MB."""
_SAID = 3


def get_files(source: str, folder: Path) -> int:
    """Write KernelBench's files of levels 1 to 3 to `folder`; return their number.

    Args:
        source: an address (https or file) of an archive, the path of an archive, or the path of a clone.
        folder: created if missing. Existing files of the same content stay.

    Raises:
        UsageError: the source lacks files or has other content, or `folder` has files of other content.
        InfraError: the address cannot be read, or a file cannot be written.
    """
    expected = {small.name: sha256 for sha256, small in shipped_small_sizes().items()}
    files = dict(_files_of(source))
    wrong = [name for name, sha256 in expected.items() if hashlib.sha256(files.get(name, b"")).hexdigest() != sha256]
    if wrong:
        message = f"{len(wrong)} of KernelBench's {len(expected)} files are missing in {source} or have other content"
        hint = f"{REPOSITORY} has them at commit {COMMIT}; --problems takes a clone at another commit as it is"
        raise UsageError(f"{message}: {', '.join(wrong[:_SAID])}, …", hint=hint)
    _write({name: files[name] for name in expected}, folder)
    return len(expected)


def _write(files: Mapping[str, bytes], folder: Path) -> None:
    paths = {folder / f"{name}.py": content for name, content in files.items()}
    try:
        new_files = {path: content for path, content in paths.items() if not path.exists()}
        for path, content in paths.items():
            if path not in new_files and read_bytes(path, folder) != content:
                raise UsageError(f"{path} has other content", hint="name a new folder with --output")
        for path, content in new_files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, content)
    except OSError as error:
        raise InfraError(f"cannot write to {folder}: {error.strerror or error}") from error


def _files_of(source: str) -> Iterator[tuple[str, bytes]]:
    """Yield the names and the contents of a source's problems."""
    if (scheme := source.partition("://")[0]) != source:
        if scheme not in _SCHEMES:
            raise UsageError(f"{source} is no address of https", hint="name an https address, an archive or a clone")
        yield from _files_at(source)
    elif Path(source).is_dir():
        for file in problem_files(Path(source)):
            yield problem_name(file), read_bytes(file, Path(source))
    else:
        try:
            with Path(source).open("rb") as archive:
                yield from _unpacked(archive, source)
        except OSError as error:
            raise UsageError(f"cannot read {source}: {error.strerror or error}") from error


def _files_at(address: str) -> Iterator[tuple[str, bytes]]:
    try:
        with urllib.request.urlopen(address, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - the caller allows two schemes
            if not answer.geturl().startswith(tuple(f"{scheme}:" for scheme in _SCHEMES)):
                raise UsageError(f"{address} leads to {answer.geturl()}, which is no address of https")
            yield from _unpacked(answer, address)
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        hint = (
            f"where there is a network: git clone {REPOSITORY} && git -C KernelBench checkout {COMMIT}; "
            "then: warpgrade problems get kernelbench --from KernelBench"
        )
        raise InfraError(f"cannot fetch {address}: {getattr(error, 'reason', None) or error}", hint=hint) from error


def _unpacked(archive: IO[bytes], source: str) -> Iterator[tuple[str, bytes]]:
    """Yield the files of the archive's folders `KernelBench/levelN`. Nothing else is unpacked."""
    try:
        with tarfile.open(fileobj=archive, mode="r|gz") as members:
            for member in members:
                if member.offset_data + member.size > _MOST_ARCHIVE_BYTES:
                    raise UsageError(f"{source} is larger than {_MOST_ARCHIVE_BYTES >> 20} MiB")
                *_, top, level, file = ("", "", *PurePosixPath(member.name).parts)
                if top == "KernelBench" and file.endswith(".py") and member.isfile() and member.size <= MAX_FILE_BYTES:
                    content = members.extractfile(member)
                    yield f"{level}/{file.removesuffix('.py')}", b"" if content is None else content.read()
    except (tarfile.TarError, EOFError) as error:
        raise ProblemError(f"{source} is no archive of KernelBench: {error}") from error
