"""The C++ and CUDA inside a submission's strings, and where a line of it stands in the submission."""

import ast
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from evaluator.build.diagnostics import LineMap
from evaluator.emulator.lexer import Code, Function, Kind, Token, tokens

_CODE_LINE = re.compile(r"[;{}]\s*\\?$|^\s*#\s*\w", re.MULTILINE)


class Piece(NamedTuple):
    """A string that holds code: its tokens, the code among them with its functions, and the line of its quotes."""

    all_tokens: list[Token]
    code: Code
    functions: list[Function]
    lines: LineMap
    first_line: int

    def line(self, token: Token) -> int:
        """Give the submission's line of a token; that of the string where its own cannot be told."""
        return self.lines.submission_line(token.line) or self.first_line


def docstrings(nodes: Sequence[ast.AST]) -> set[int]:
    """Give the identities of the strings that stand alone as statements."""
    return {id(node.value) for node in nodes if isinstance(node, ast.Expr)}


def texts(nodes: Sequence[ast.AST]) -> Iterator[tuple[ast.expr, str]]:
    """Give every string of a module with its text; what an f-string fills in is left out."""
    parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in nodes:
        match node:
            case ast.Constant(value=str() as text) if id(node) not in parts:
                yield node, text
            case ast.JoinedStr(values=values):
                constants = [value.value for value in values if isinstance(value, ast.Constant)]
                yield node, " ".join(str(value) for value in constants)
            case _:
                continue


def pieces(nodes: Sequence[ast.AST], source: str) -> list[Piece]:
    """Find the strings that hold C++ or CUDA, and cut them into tokens."""
    aside = docstrings(nodes)
    found = []
    for node, text in texts(nodes):
        if id(node) in aside or _CODE_LINE.search(text) is None:
            continue
        all_tokens = tokens(text)
        code = Code(all_tokens)
        found.append(Piece(all_tokens, code, code.functions(), LineMap(text, source), node.lineno))
    return found


def calls(code: Code) -> Iterator[tuple[int, Token]]:
    """Give the names that are called (a `(` follows), members of something left out, with their indices."""
    for index, token in enumerate(code.tokens):
        if token.kind is Kind.WORD and code.text(index + 1) == "(" and code.text(index - 1) not in (".", "->"):
            yield index, token
