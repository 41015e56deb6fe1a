"""Tensors in files of the safetensors format, for inputs of problems: a header in JSON, then the bytes of the tensors.

The file comes from a stranger: every number of the header is checked before use, and nothing is unpickled.
"""

import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, BinaryIO

import msgspec
import torch

from evaluator.errors import ProblemError

ROOT_VARIABLE = "FLASHINFER_TRACE_DIR"
"""Environment variable of FlashInfer-Trace and SOL-ExecBench with the folder of the data set."""
_MOST_HEADER_BYTES = 16 << 20
_LENGTH_BYTES = 8
_MOST_PARENTS = 8
_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**50)]


class _Entry(msgspec.Struct, frozen=True):
    """A tensor in the header. `data_offsets` are the first byte and the byte behind the last, after the header."""

    dtype: str
    shape: Annotated[list[_Count], msgspec.Meta(max_length=16)]
    data_offsets: tuple[_Count, _Count]


def stored_tensor(folder: str, file: str, key: str, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor of a safetensors file, in new memory of the CPU.

    Args:
        folder: the problem's folder. `file` is relative to it, to a folder above it, or to the folder named by the
            environment variable `FLASHINFER_TRACE_DIR`.
        file: the path of the file, without `..`.
        key: the name of the tensor.
        shape: the expected shape.
        dtype: the expected dtype.

    Raises:
        ProblemError: no file exists, the file is broken, or the tensor is missing or another than expected.
    """
    path = _found(Path(folder), file)
    try:
        with path.open("rb") as opened:
            return _read(opened, path, key, torch.Size(shape), dtype)
    except OSError as error:
        raise ProblemError(f"{path}: cannot read: {error.strerror or error}") from error


def _found(folder: Path, file: str) -> Path:
    place = PurePosixPath(file)
    if place.is_absolute() or ".." in place.parts or "\0" in file:
        raise ProblemError(f"{file[:200]!r} is no path below a folder of data: it may not be absolute or contain '..'")
    path = next((path for path in _candidates(folder, place) if path.is_file()), None)
    if path is None:
        hint = f"fetch the data set's files, and name its folder: {ROOT_VARIABLE}=DIR warpgrade …"
        raise ProblemError(f"{file[:200]} does not exist in {folder} or above it", hint=hint)
    return path


def _candidates(folder: Path, place: PurePosixPath) -> Iterator[Path]:
    """Yield the possible paths. The named folder may already contain the first parts of the path."""
    if root := os.environ.get(ROOT_VARIABLE):
        yield from (Path(root, *place.parts[start:]) for start in range(len(place.parts)))
    here = folder.absolute()
    yield from (above / place for above in [here, *here.parents][: _MOST_PARENTS + 1])


def _read(file: BinaryIO, path: Path, key: str, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    size_bytes = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    if length > min(_MOST_HEADER_BYTES, size_bytes - _LENGTH_BYTES):
        raise ProblemError(f"{path}: not in the safetensors format: the header is longer than the file, or than 16 MiB")
    entry = _entry(file.read(length), path, key)
    found = _DTYPES.get(entry.dtype)
    if (found, entry.shape) != (dtype, list(shape)):
        wanted = f"{str(dtype).removeprefix('torch.')} of shape {list(shape)}"
        raise ProblemError(f"{path}: {key}: {entry.dtype} of shape {entry.shape}, expected {wanted}")
    begin, end = entry.data_offsets
    tensor_bytes = math.prod(entry.shape) * dtype.itemsize
    if end - begin != tensor_bytes or _LENGTH_BYTES + length + end > size_bytes:
        raise ProblemError(f"{path}: {key}: its bytes are not inside of the file, or not as many as its shape needs")
    file.seek(_LENGTH_BYTES + length + begin)
    values = bytearray(file.read(tensor_bytes))
    if len(values) != tensor_bytes:
        raise ProblemError(f"{path}: {key}: the file ends early")
    return torch.frombuffer(values, dtype=dtype).reshape(shape) if values else torch.empty(shape, dtype=dtype)


def _entry(header: bytes, path: Path, key: str) -> _Entry:
    try:
        entries: dict[str, Any] = msgspec.json.decode(header, type=dict[str, Any])
        if key in entries:
            return msgspec.convert(entries[key], _Entry)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ProblemError(f"{path}: not in the safetensors format: {error}") from error
    names = ", ".join(sorted(entries)[:8])
    raise ProblemError(f"{path}: no tensor is named {key[:80]!r}; tensors: {names[:400]}")
