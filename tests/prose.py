"""Pronouns in docstrings and comments: how many in 100 words.

    python -m tests.prose [FOLDER …]

prints the density of each folder (by default each room of `evaluator`) and its densest files. Technical prose that
names its nouns has 2 to 4: httpx, nox, pypa/build, nvbench.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TOP = Path(__file__).parents[1]
PRONOUNS = frozenset(
    {
        *("it", "its", "itself", "this", "that", "these", "those", "what", "whatever", "which", "whichever"),
        *("who", "whoever", "whom", "whose", "one", "ones", "they", "them", "their", "theirs", "themselves"),
        *("there", "such", "so", "here", "nobody", "somebody", "anybody", "everybody", "others"),
    }
)
_WORD = re.compile(r"[A-Za-z]+(?:'[a-z]+)?")
_CODE = re.compile(r"`[^`]*`")
_DIRECTIVE = re.compile(r"#\s*(?:noqa|type:|ruff:|pragma|fmt:)")


class Count(NamedTuple):
    """Words and the pronouns among them."""

    pronouns: int = 0
    words: int = 0

    @property
    def per_100(self) -> float:
        """Pronouns in 100 words."""
        return 100.0 * self.pronouns / max(self.words, 1)

    def plus(self, other: "Count") -> "Count":
        """Return the sum of two counts."""
        return Count(self.pronouns + other.pronouns, self.words + other.words)


def prose(source: str) -> Iterator[str]:
    """Yield the docstrings, the strings below constants, and the comments of a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value.partition(">>>")[0]
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and _DIRECTIVE.match(token.string) is None:
            yield token.string


def count(path: Path) -> Count:
    """Count the words of a module's prose."""
    words = [
        word.lower().partition("'")[0]
        for text in prose(path.read_text(encoding="utf-8"))
        for word in _WORD.findall(_CODE.sub(" ", text))
    ]
    return Count(sum(word in PRONOUNS for word in words), len(words))


def counts(folder: Path) -> dict[Path, Count]:
    """Count each module below `folder`."""
    return {path: count(path) for path in sorted(folder.rglob("*.py"))}


def total(found: dict[Path, Count]) -> Count:
    """Add the counts of modules."""
    result = Count()
    for each in found.values():
        result = result.plus(each)
    return result


def main() -> None:
    """Print the densities."""
    folders = [Path(name) for name in sys.argv[1:]]
    rooms = folders or sorted(path for path in (TOP / "evaluator").iterdir() if path.is_dir() and path.name[0] != "_")
    for folder in rooms:
        found = counts(folder)
        print(f"{total(found).per_100:5.1f}  {total(found).words:6}  {folder.name}")
        if folders:
            for path, each in sorted(found.items(), key=lambda item: -item[1].pronouns)[:25]:
                print(f"  {each.per_100:5.1f} {each.pronouns:5} of {each.words:5}  {path.relative_to(folder)}")
    print(f"{total(counts(TOP / 'evaluator')).per_100:5.1f}          evaluator")


if __name__ == "__main__":
    main()
