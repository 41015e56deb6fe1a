"""Attacks that are no submission: hostile cards, folders, frames and builds, each with the tests that show its end."""

import ast
import tomllib
from pathlib import Path

import msgspec

_FOLDER = Path(__file__).parent / "judge"
_TOP = Path(__file__).parents[2]


class Attack(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of `judge/`: the attack in a sentence, the judge's answer, and the tests of both."""

    attack: str
    now: str
    tests: list[str]


def attacks() -> dict[str, Attack]:
    """Read every file, by its name.

    Raises:
        msgspec.ValidationError: a file lacks a key or has an unknown one.
    """
    found = {path.stem: msgspec.convert(tomllib.loads(path.read_text()), Attack) for path in _FOLDER.glob("*.toml")}
    return dict(sorted(found.items(), key=lambda item: (item[0][0], int(item[0][1:]))))


def is_defined(test: str) -> bool:
    """Say whether a test of that node id is in the tree; a case of a parametrised one by its function alone."""
    name, _, function = test.partition("::")
    path = _TOP / name
    if not path.is_file():
        return False
    wanted = function.partition("[")[0].split("::")[-1]
    tree = ast.parse(path.read_text())
    return any(isinstance(node, ast.FunctionDef) and node.name == wanted for node in ast.walk(tree))
