"""Files of a run with a JSON record on each line: plan and refused inputs."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from evaluator.errors import CardError
from evaluator.files.safe_open import read_found
from evaluator.records import Record

R = TypeVar("R", bound=Record)
_FILLED = re.compile(rb"\S[^\n]*")


def read_lines(folder: Path, name: str, record: type[R], most_bytes: int, hint: str) -> Iterator[R]:
    """Read the records of a file in the folder of a run; none without the file. A line cut by a crash is ignored.

    Raises:
        CardError: the file cannot be read, or has more than `most_bytes`; `hint` is the remedy for such a file.
    """
    path = folder / name
    try:
        content = read_found(folder, name, most_bytes)
    except FileNotFoundError:
        return
    except OSError as error:
        raise CardError(f"cannot read {path}: {error.strerror or error}") from error
    if len(content) > most_bytes:
        raise CardError(f"{path} is larger than {most_bytes >> 20} MiB, the limit for this file", hint=hint)
    decoder = msgspec.json.Decoder(record)
    for match in _FILLED.finditer(content):
        try:
            yield decoder.decode(match[0])
        except (ValueError, RecursionError):
            continue
