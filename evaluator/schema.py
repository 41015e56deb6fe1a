"""JSON Schemas of Warpgrade's documents, generated from its records, and validation of a file.

`python -m evaluator.schema --write` renews `schemas/`; a test fails if records and files differ.
"""

import reprlib
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Any

import click
import msgspec

from evaluator.batch.runs.manifest import RUN_VERSION, RunManifest
from evaluator.cards.consistency import inconsistencies
from evaluator.catalog.folder import ProblemFile, Sizes
from evaluator.errors import CardError
from evaluator.files.card_files import card_of, in_current_form, is_readable, read_bytes, why_unreadable
from evaluator.records import SCHEMA_VERSION, Scorecard

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_PROBLEM_VERSION = 1
_MOST_FAULTS = 20
_CONSTANT_TYPES = ["boolean", "integer", "number", "string"]


class SchemaName(StrEnum):
    """Documents with a schema."""

    SCORECARD = "scorecard"
    PROBLEM = "problem"
    RUN = "run"


def schema(name: SchemaName) -> dict[str, Any]:
    """Return the JSON Schema of the document `name`."""
    match name:
        case SchemaName.SCORECARD:
            made = _document(name, Scorecard, "Warpgrade scorecard")
            made["$defs"]["Scorecard"]["properties"]["schema_version"] = {"const": SCHEMA_VERSION}
            made["$defs"]["Scorecard"]["required"].insert(0, "schema_version")
            return made
        case SchemaName.PROBLEM:
            made = _document(name, ProblemFile, "problem.toml")
            made["description"] = "What a problem's folder says about its reference.py."
            # The catalog checks the tables in Python, for better messages; the schema describes their form too.
            made["$defs"]["Constants"] = {"type": "object", "additionalProperties": {"type": _CONSTANT_TYPES}}
            sizes = made["$defs"][Sizes.__name__]["properties"]
            sizes.update({size: {"$ref": "#/$defs/Constants"} for size in sizes})
            dimension = {"type": "integer", "minimum": 0}
            made["$defs"][ProblemFile.__name__]["properties"]["split"] |= {"additionalProperties": dimension}
            return made
        case SchemaName.RUN:
            made = _document(name, RunManifest, "Warpgrade run: manifest.json")
            made["$defs"][RunManifest.__name__]["properties"]["run_version"] = {"const": RUN_VERSION}
            made["$defs"][RunManifest.__name__]["required"].insert(0, "run_version")
            return made


def schema_bytes(name: SchemaName) -> bytes:
    """Return the JSON Schema of `name` as stored in `schemas/`."""
    return msgspec.json.format(msgspec.json.encode(schema(name)), indent=2) + b"\n"


def check_card(path: Path) -> list[str]:
    """Validate the file at `path` against the scorecard's schema, and its conclusions against its evidence.

    Return each fault with its location.

    Raises:
        CardError: the file cannot be read, is too large, or is not a JSON object.
    """
    return faults_of(read_bytes(path), path)


def faults_of(content: bytes, path: Path) -> list[str]:
    """Return the faults in the content of `path`, as `check_card` does."""
    try:
        document = msgspec.json.decode(content)
    except (ValueError, RecursionError) as error:
        raise CardError(f"{path} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise CardError(f"{path} is not a scorecard: {_kind(document)} instead of an object")
    version = document.get("schema_version")
    if isinstance(version, int) and not is_readable(version):
        return [f"schema_version: this card is of version {version}; {why_unreadable(version)}"]
    try:
        if is_readable(version):
            document = in_current_form(document) | {"schema_version": SCHEMA_VERSION}
        if faults := _faults(document):
            return faults
        card = card_of(content, path)
    except CardError as error:  # of an earlier version, with times that no current field holds
        return [f"timing: {error.message}; {error.hint}"]
    except RecursionError as error:
        raise CardError(f"{path} is not a scorecard: nested too deeply") from error
    except ValueError as error:  # a number valid in the schema and not in the record
        return [f"the card: {error}"]
    return _cut_short([str(each) for each in inconsistencies(card)])


def is_earlier(version: object) -> bool:
    """Return whether a version is readable and not the current version."""
    return version != SCHEMA_VERSION and is_readable(version)


def _document(name: SchemaName, record: type, title: str) -> dict[str, Any]:
    made = msgspec.json.schema(record)
    described = made["$defs"][record.__name__].get("description", "")
    return {
        "$schema": DIALECT,
        "$id": f"urn:warpgrade:schema:{name.value}:{_version(name)}",
        "title": title,
        "description": described,
    } | made


def _version(name: SchemaName) -> int:
    match name:
        case SchemaName.SCORECARD:
            return SCHEMA_VERSION
        case SchemaName.PROBLEM:
            return _PROBLEM_VERSION
        case SchemaName.RUN:
            return RUN_VERSION


def _faults(document: dict[str, Any]) -> list[str]:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError, best_match

    def where(error: ValidationError) -> list[str]:
        return [str(part) for part in error.absolute_path]

    validator = Draft202012Validator(schema(SchemaName.SCORECARD))
    errors = sorted(validator.iter_errors(document), key=where)
    # Among the alternatives of an `anyOf`, report the closest match.
    nearest = [best_match([error]) or error for error in errors]
    faults = [f"{json_path(error.absolute_path)}: {_friendly(error)}" for error in nearest]
    return _cut_short(faults)


def _cut_short(faults: list[str]) -> list[str]:
    left = len(faults) - _MOST_FAULTS
    return [*faults[:_MOST_FAULTS], f"and {left} more"] if left > 0 else faults


def json_path(parts: Iterable[str | int]) -> str:
    """Return a location in a document in Python notation.

    >>> json_path(["checks", 2, "tensors"]), json_path([])
    ('checks[2].tensors', 'the card')
    """
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    return path.removeprefix(".") or "the card"


def _friendly(error: Any) -> str:
    """Return the error as a message without large values."""
    match error.validator:
        case "type":
            return f"{_kind(error.instance)} stands where {_kinds(error.validator_value)} belongs"
        case "anyOf":
            # A branch without a type refers to a record.
            allowed = [branch.get("type", "object") for branch in error.validator_value]
            return f"{_kind(error.instance)} stands where {_kinds(allowed)} belongs"
        case "required" | "additionalProperties":
            return str(error.message)[:200]
        case "enum":
            return f"{reprlib.repr(error.instance)} is none of {', '.join(map(str, error.validator_value))}"
        case "pattern":
            return f"{reprlib.repr(error.instance)} does not have the form {error.validator_value}"
        case _:
            return str(error.message)[:200]


_KINDS = {
    "object": "an object",
    "array": "a list",
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}


def _kinds(names: str | list[str]) -> str:
    return " or ".join(_KINDS[name] for name in ([names] if isinstance(names, str) else names))


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "a list"
        case _:
            return "an object"


def schema_file(name: SchemaName, folder: Path) -> Path:
    """Return the path of a schema's file in `folder`."""
    return folder / f"{name.value}.schema.json"


@click.command()
@click.option("--write", is_flag=True, help="Renew the files; without it, only name those that differ.")
@click.argument("folder", default="schemas", type=click.Path(file_okay=False, path_type=Path))
def main(*, write: bool, folder: Path) -> None:
    """Compare the schemas in FOLDER with the records, or renew them."""
    for name in SchemaName:
        path, made = schema_file(name, folder), schema_bytes(name)
        if path.is_file() and path.read_bytes() == made:
            continue
        if write:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_bytes(made)
        click.echo(f"{path}: {'written' if write else 'differs from the records'}")


if __name__ == "__main__":
    main()
