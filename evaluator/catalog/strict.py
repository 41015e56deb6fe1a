"""Strict reading of JSON and YAML: each error names the file and the key, with the allowed values."""

import keyword
import re
from collections.abc import Iterable
from enum import Enum
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from evaluator.catalog.text import did_you_mean, one_of
from evaluator.errors import ProblemError
from evaluator.text import one_line

_LONGEST = 80
_MOST_MESSAGE = 300
_FIELD = re.compile(r"(?P<kind>unknown|missing required) field `(?P<name>.*)`", re.DOTALL)
_T = TypeVar("_T", bound=msgspec.Struct)


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An object of a file in JSON, YAML or TOML, without unknown keys."""


def parsed(text: str, where: str) -> Any:
    """Return the value of a JSON text; `where` names the file, maybe with a line.

    Raises:
        ProblemError: the text is no JSON.
    """
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        raise ProblemError(f"{where}: not JSON: {error}") from error


def parsed_yaml(text: str, where: str) -> Any:
    """Return the value of a YAML text, without objects of other kinds than JSON's; `where` names the file.

    Raises:
        ProblemError: the text is no YAML.
    """
    try:
        return msgspec.yaml.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise ProblemError(f"{where}: not YAML: {one_line(str(error), _MOST_MESSAGE)}") from error


def table(value: object, kind: type[_T], where: str, key: str = "") -> _T:
    """Return an object as a record; `key` is the place in the file, or empty for the whole file.

    Raises:
        ProblemError: a key is unknown, missing, or has another type.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _explained(str(error), kind, where, key) from error


def _explained(complaint: str, kind: type[msgspec.Struct], where: str, key: str) -> ProblemError:
    """Convert msgspec's `what - at `$.where`` into an error that also lists the allowed values."""
    reason, _, location = complaint.partition(" - at ")
    inner = location.strip("`").removeprefix("$").removeprefix(".").replace("[...]", "")
    match = _FIELD.search(reason)
    types = _types_at(kind, inner)
    if match is None:
        values: list[object] = [each for each in types if isinstance(each, int)]
        values += [value for each in types if isinstance(each, type) and issubclass(each, Enum) for value in each]
        allowed = f"; {one_of(values)}" if values else ""
        reason = "must not be empty" if reason.endswith("length >= 1") else f"{reason[:1].lower()}{reason[1:]}"
        return ProblemError(f"{where}: {label(key, inner)}: {reason}{allowed}")
    name = match["name"][:_LONGEST]
    if match["kind"] == "unknown":
        fields = next(each.__struct_fields__ for each in types if _is_struct(each))
        message = f"{where}: {label(key, inner, name)}: unknown key; {one_of(fields)}"
        return ProblemError(message, hint=did_you_mean(name, fields))
    return ProblemError(f"{where}: {label(key, inner, name)}: this key is required")


def _types_at(kind: type[msgspec.Struct], place: str) -> list[Any]:
    """Return the type at a place such as `sizes.full`, then its parts: types of a union, values of a Literal."""
    types: list[Any] = [kind]
    for name in filter(None, re.sub(r"\[\w*\]", "", place).split(".")):
        hints = next((get_type_hints(each) for each in types if _is_struct(each)), {})
        types = [hints.get(name), *get_args(hints.get(name))]
    return types


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def usable_names(names: Iterable[str], where: str) -> None:
    """Raise ProblemError for a name unusable as a variable of Python."""
    for name in names:
        if not (name.isascii() and name.isidentifier()) or keyword.iskeyword(name):
            raise ProblemError(f"{where}: {name[:_LONGEST]!r} cannot be the name of an axis or input: no identifier")


def label(*keys: str) -> str:
    """Return the place of a value in a file.

    >>> label("axes", "", "rows"), label("")
    ('axes.rows', 'the file')
    """
    return ".".join(key[:_LONGEST] for key in keys if key) or "the file"
