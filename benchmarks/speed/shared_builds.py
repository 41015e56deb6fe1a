"""How many builds of published kernels would be shared if comments and blank space did not count.

    python -m benchmarks.speed.shared_builds GIT_DIRECTORY [GIT_DIRECTORY ...]

Reads the newest commit of each repository: Python files, and strings of JSON files, that call `load_inline`. Nothing is
run: sources are read if they are constants of the module. Equal submissions count once, as they share a build already.
A build is equal to another if all arguments of `load_inline` are equal, and without comments if the sources have the
same tokens and directives.
"""

import argparse
import ast
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evaluator.cuda_source.lexer import Kind, tokens

_SOURCES = ("cpp_sources", "cuda_sources")


def main() -> None:
    """Print a row of a table for each repository."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repositories", nargs="+", type=Path)
    print("| repository | submissions | builds | different | different without comments |\n|---|---|---|---|---|")
    for repository in parser.parse_args().repositories:
        texts = sorted(set(submissions(repository)))
        calls = [call for text in texts for call in inline_calls(text)]
        exact = {json.dumps(call, sort_keys=True, default=repr) for call in calls}
        bare = {json.dumps(without_comments(call), sort_keys=True, default=repr) for call in calls}
        print(f"| {repository.parent.name} | {len(texts)} | {len(calls)} | {len(exact)} | {len(bare)} |")


def submissions(repository: Path) -> Iterator[str]:
    """Yield the texts of a repository that call `load_inline`."""
    for name in _git(repository, "ls-tree", "-r", "--name-only", "HEAD").splitlines():
        if name.endswith(".py"):
            found = [_git(repository, "show", f"HEAD:{name}")]
        elif name.endswith(".json"):
            lines = _git(repository, "show", f"HEAD:{name}")
            found = [text for value in _values(lines) for text in _strings(value)]
        else:
            continue
        yield from (text for text in found if "load_inline" in text)


def inline_calls(text: str) -> list[dict[str, Any]]:
    """Return the arguments of each call of `load_inline` whose sources are constants of the module."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except SyntaxError:
        return []
    known: dict[str, Any] = {}
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                known[name] = _constant(value, known)
    calls = [node for node in nodes if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("load_inline")]
    found = [{word.arg or "": _constant(word.value, known) for word in call.keywords} for call in calls]
    return [call for call in found if any(_texts(call.get(name)) for name in _SOURCES)]


def without_comments(call: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with tokens in place of sources."""
    bare = {name: [_tokens(text) for text in _texts(call.get(name))] for name in _SOURCES}
    return call | bare


def _tokens(text: str) -> list[str]:
    return [token.text for token in tokens(text) if token.kind not in (Kind.SPACE, Kind.COMMENT)]


def _texts(value: Any) -> list[str]:
    given = value if isinstance(value, list) else [value]
    return [each for each in given if isinstance(each, str)]


def _constant(node: ast.expr, known: dict[str, Any]) -> Any:
    """Return the value of an expression of constants; for any other expression, its text."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name) if name in known:
            return known[name]
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_constant(item, known) for item in items]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            both = _constant(left, known), _constant(right, known)
            return "".join(both) if all(isinstance(each, str) for each in both) else ast.unparse(node)
        case _:
            return ast.unparse(node)


def _values(text: str) -> list[Any]:
    """Return the value of a JSON file, or the value of each line."""
    try:
        return [json.loads(text)]
    except json.JSONDecodeError:
        return [json.loads(line) for line in text.splitlines() if line.strip()]


def _strings(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case list() | dict():
            for item in value.values() if isinstance(value, dict) else value:
                yield from _strings(item)


def _git(repository: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "--git-dir", str(repository), *arguments], capture_output=True, check=True)
    return done.stdout.decode(errors="replace")


if __name__ == "__main__":
    main()
