"""Defaults of `grade` and `batch` from `[tool.warpgrade]` in the nearest pyproject.toml.

A submission's author may be able to write into the current folder. Therefore no file can choose the rules of a
verdict or of its times, name code to trust, weaken the sandbox or sign cards. Each command reports the options from the
file on stderr.
"""

import contextlib
import os
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from evaluator.catalog.text import did_you_mean, one_of
from evaluator.errors import UsageError
from evaluator.files.safe_open import read_named_regular
from evaluator.text import one_line

NAME = "pyproject.toml"
KEYS = ("device", "gpu", "strict", "require-own-kernel", "baseline", "timeout", "build-timeout", "deadline", "jobs")
"""Accepted options, without dashes in front."""
RULES = ("size", "case", "stop-at-failure", "budget-s", "mode", "tolerance", "weights", "values", "l2", "entry")
"""Options with the rules of a verdict and of its times."""


def _variable(option: str) -> str:
    return option.upper().replace("-", "_")


REFUSED = {
    **{
        rule: f"{rule} is a rule of the verdict: use --{rule} or the variable WARPGRADE_GRADE_{_variable(rule)} "
        f"(WARPGRADE_BATCH_{_variable(rule)})"
        for rule in RULES
    },
    "problems": "the code of problems is trusted: use --problems or the variable WARPGRADE_PROBLEMS",
    "sandbox": "use --sandbox",
    "sign": "use --sign or the variable WARPGRADE_SIGNING_KEY",
}
"""Options with a reason why no file may set them, as a hint."""
_MOST_BYTES = 1 << 20
_TABLE = b"warpgrade"


def nearest() -> tuple[Path | None, Mapping[str, Any]]:
    """Return path and table of the nearest pyproject.toml with `[tool.warpgrade]`, in this folder or above.

    A file of another user is ignored, because /tmp and other shared folders are above many projects.

    Raises:
        UsageError: the file cannot be read, or is no TOML.
    """
    with contextlib.suppress(FileNotFoundError):  # The current folder has been deleted.
        start = Path.cwd()
        for path in (folder / NAME for folder in (start, *start.parents)):
            if _is_ours(path) and (table := _table(path)) is not None:
                return path, table
    return None, {}


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


def defaults(command: click.Command, path: Path, table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of `command` in a table, by parameter.

    Raises:
        UsageError: an option is unknown or refused, or has an invalid value.
    """
    parameters = {param.name: param for param in command.params if isinstance(param, click.Option)}
    options: dict[str, Any] = {}
    for key, value in table.items():
        if key in REFUSED:
            raise UsageError(f"{path}: {key} cannot be set in a file", hint=REFUSED[key])
        if key not in KEYS:
            hint = did_you_mean(key, KEYS) or one_of(KEYS)
            raise UsageError(f"{path}: unknown option {one_line(key, 60)}", hint=hint)
        name = key.replace("-", "_")
        if (option := parameters.get(name)) is None:
            continue
        if (form := _expected_form(option, value)) is not None:
            raise UsageError(f"{path}: {key} is not {form}")
        try:
            option.process_value(click.Context(command), value)
        except click.BadParameter as error:
            raise UsageError(f"{path}: {key}: {one_line(error.message, 200)}") from error
        options[name] = value
    return options


def report_on(path: Path, options: Mapping[str, Any]) -> str:
    """Return a line about options from a file, in the form of the file."""
    listed = ", ".join(
        f"{name.replace('_', '-')} = {msgspec.json.encode(value).decode()}" for name, value in options.items()
    )
    return one_line(f"options of {path}: {listed}", 400)


def _expected_form(option: click.Option, value: Any) -> str | None:
    """Return the expected form of a value of another form; click would convert true to 1.0."""
    if option.multiple:
        return None if isinstance(value, list) else f'a list: {option.name} = ["…"]'
    if option.is_flag:
        return None if isinstance(value, bool) else "true or false"
    return None if isinstance(value, str | int | float) and not isinstance(value, bool) else "a number or a text"
