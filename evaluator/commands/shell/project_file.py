"""Options in `[tool.warpgrade]` of the nearest pyproject.toml: defaults of `grade` and `batch`.

A submission's author may be able to write into the current folder. Therefore no file can choose the rules of a
verdict or of its times, name code to trust, weaken the sandbox or sign cards. Each command reports the options from the
file on stderr.
"""

import os
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from evaluator.catalog.text import did_you_mean, one_of
from evaluator.errors import UsageError
from evaluator.files.safe_open import read_named_regular
from evaluator.text import one_line

NAME = "pyproject.toml"
KEYS = ("device", "gpu", "strict", "require-own-kernel", "baseline", "timeout", "build-timeout", "deadline", "jobs")
"""Accepted options, without dashes in front."""
RULES = ("size", "mode", "tolerance", "weights", "values", "l2", "entry")
"""Options with the rules of a verdict and of its times."""
REFUSED = {
    **{
        rule: f"{rule} is a rule of the verdict: use --{rule} or the variable WARPGRADE_GRADE_{rule.upper()} "
        f"(WARPGRADE_BATCH_{rule.upper()})"
        for rule in RULES
    },
    "problems": "the code of problems is trusted: use --problems or the variable WARPGRADE_PROBLEMS",
    "sandbox": "use --sandbox",
    "sign": "use --sign or the variable WARPGRADE_SIGNING_KEY",
}
"""Options with a reason why no file may set them, as a hint."""
_MOST_BYTES = 1 << 20
_TABLE = b"warpgrade"


class ProjectFile(NamedTuple):
    """A pyproject.toml with a table for Warpgrade: options by name."""

    path: Path
    options: Mapping[str, Any]


def nearest(start: Path) -> ProjectFile | None:
    """Return the nearest pyproject.toml with `[tool.warpgrade]`, in `start` or a folder above, or None.

    A file of another user is ignored, because /tmp and other shared folders are above many projects.

    Raises:
        UsageError: the file cannot be read, or has an unknown or refused option.
    """
    for folder in (start, *start.parents):
        path = folder / NAME
        if _is_ours(path) and (options := _table(path)) is not None:
            _refuse_unaccepted(path, options)
            return ProjectFile(path, options)
    return None


def _is_ours(path: Path) -> bool:
    try:
        facts = path.stat()
    except OSError:
        return False
    return stat.S_ISREG(facts.st_mode) and facts.st_uid in {0, os.geteuid()}


def _table(path: Path) -> dict[str, Any] | None:
    try:
        content = read_named_regular(path, _MOST_BYTES)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    if _TABLE not in content:
        return None
    if len(content) > _MOST_BYTES:
        raise UsageError(f"{path} is larger than {_MOST_BYTES >> 20} MiB")
    try:
        tools = tomllib.loads(content.decode("utf-8")).get("tool", {})
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{path} is not TOML: {one_line(str(error), 200)}", hint="mend the file") from error
    table = tools.get("warpgrade") if isinstance(tools, dict) else None
    if table is not None and not isinstance(table, dict):
        raise UsageError(f"{path}: tool.warpgrade is not a table", hint="write [tool.warpgrade]")
    return table


def _refuse_unaccepted(path: Path, options: Mapping[str, Any]) -> None:
    for key in options:
        shown = one_line(key, 60)
        if key in REFUSED:
            raise UsageError(f"{path}: {shown} cannot be set in a file", hint=REFUSED[key])
        if key not in KEYS:
            raise UsageError(f"{path}: unknown option {shown}", hint=did_you_mean(key, KEYS) or one_of(KEYS))
