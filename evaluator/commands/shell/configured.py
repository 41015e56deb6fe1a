"""Commands whose options may come from a project's pyproject.toml or from the environment."""

from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any, NamedTuple

import click
from click.core import ParameterSource

from evaluator.commands.shell.project_file import KEYS, NAME, ProjectFile, nearest
from evaluator.errors import UsageError
from evaluator.text import one_line

NO_CONFIG = "no_config"
"""Parameter of the command line's group: read no pyproject.toml."""
_FILE = "warpgrade.project_file"
SECONDS = "SECONDS"
"""Metavariable of options in seconds."""
_NOTHING = "none"


class Setting(NamedTuple):
    """Value of an option without a word on the command line; `source` is the variable, the file or `default`.

    `text` is the value with a unit.
    """

    option: str
    source: str
    value: Any
    text: str


class Configured(click.Command):
    """Command with defaults from the nearest pyproject.toml.

    A replay has the options of the card instead, and no file can break --help.
    """

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parse the arguments, with the file's options as defaults."""
        without = {"--replay", "--help", "-h"} & {word.partition("=")[0] for word in args}
        file = None if without or extra.get("resilient_parsing") else file_for(parent)
        if file is not None:
            extra = {**extra, "default_map": defaults(self, file)}
        ctx = super().make_context(info_name, args, parent, **extra)
        ctx.meta[_FILE] = file
        return ctx


def file_options(ctx: click.Context) -> str | None:
    """Return a line about the options of a command from a file; None without such options."""
    file = ctx.meta.get(_FILE)
    used = [
        f"{name_of(param)} = {shown(ctx.params[param.name or ''])}"
        for param in ctx.command.params
        if ctx.get_parameter_source(param.name or "") is ParameterSource.DEFAULT_MAP
    ]
    return one_line(f"options of {file.path}: {', '.join(used)}", 400) if file is not None and used else None


def file_for(parent: click.Context | None) -> ProjectFile | None:
    """Return the file for the current folder, unless the command line or a variable forbids files."""
    if parent is not None and parent.find_root().params.get(NO_CONFIG):
        return None
    try:
        return nearest(Path.cwd())
    except FileNotFoundError:  # The current folder has been deleted.
        return None


def defaults(command: click.Command, file: ProjectFile) -> MutableMapping[str, Any]:
    """Return the options of `command` in `file`, by parameter. Raises UsageError for an invalid value."""
    found: dict[str, Any] = {}
    ctx = click.Context(command)
    for param in configurable(command):
        key = name_of(param)
        if key not in file.options:
            continue
        value = file.options[key]
        if (expected := _unlike(param, value)) is not None:
            raise UsageError(f"{file.path}: {key} is not {expected}")
        try:
            param.process_value(ctx, value)
        except click.BadParameter as error:
            raise UsageError(f"{file.path}: {key}: {one_line(error.message, 200)}") from error
        found[param.name or ""] = value
    return found


def _unlike(param: click.Option, value: Any) -> str | None:
    """Return the expected form of a value of another form; click would convert true to 1.0."""
    if param.multiple:
        return None if isinstance(value, list) else f'a list: {name_of(param)} = ["…"]'
    if param.is_flag:
        return None if isinstance(value, bool) else "true or false"
    return None if isinstance(value, str | int | float) and not isinstance(value, bool) else "a number or a text"


def configurable(command: click.Command) -> Iterator[click.Option]:
    """Yield the options permitted in a file."""
    for param in command.params:
        if isinstance(param, click.Option) and name_of(param) in KEYS:
            yield param


def name_of(param: click.Parameter) -> str:
    """Return the longest spelling of an option, without dashes."""
    return max(param.opts, key=len).lstrip("-")


def settings(command: click.Command, parent: click.Context, file: ProjectFile | None) -> Iterator[Setting]:
    """Yield the settings of all options permitted in a file or the environment.

    Raises:
        UsageError: the file, or a variable, has an invalid value.
    """
    with click.Context(command, parent, command.name) as ctx:
        ctx.default_map = {} if file is None else defaults(command, file)
        for param in command.params:
            if not isinstance(param, click.Option) or param.is_eager:
                continue
            value, source = param.consume_value(ctx, {})
            if name_of(param) not in KEYS and source is not ParameterSource.ENVIRONMENT and not param.show_envvar:
                continue
            try:
                found = param.process_value(ctx, value)
            except click.BadParameter as error:
                raise UsageError(f"{_origin(param, source, file, ctx)}: {error.message}") from error
            stated = default_text(param) if source is ParameterSource.DEFAULT else shown(found)
            unit = " s" if param.metavar == SECONDS and isinstance(stated, int | float) else ""
            number = f"{stated:g}" if unit else str(stated)
            yield Setting(name_of(param), _origin(param, source, file, ctx), stated, f"{number}{unit}")


def _origin(param: click.Option, source: ParameterSource, file: ProjectFile | None, ctx: click.Context) -> str:
    match source:
        case ParameterSource.ENVIRONMENT:
            return variable(param, ctx)
        case ParameterSource.DEFAULT_MAP if file is not None:
            return NAME
        case _:
            return "default"


def variable(param: click.Option, ctx: click.Context) -> str:
    """Return the name of the environment variable of an option."""
    own = param.envvar
    if own is not None:
        return own if isinstance(own, str) else own[0]
    return f"{ctx.auto_envvar_prefix}_{(param.name or '').upper()}"


def default_text(param: click.Option) -> Any:
    """Return the default, in the words of the help text if possible."""
    _, stated, words = (param.help or "").rpartition("[default: ")
    if stated:
        return words.rstrip("] ")
    return shown(param.default is True) if param.is_flag else shown(param.default)


def shown(value: Any) -> Any:
    """Return a value as in TOML without quotes, several values joined."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or _NOTHING
    if value is None or not isinstance(value, int | float | str | Path):
        return _NOTHING
    return str(value) if isinstance(value, Path) else value
