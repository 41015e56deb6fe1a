"""C++ and CUDA code in a submission's strings, with line numbers in the submission."""

import ast
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from evaluator.cuda_source.lexer import CodeTokens, Function, Kind, Token, tokens
from evaluator.protocol.submission_files import cpp_files
from evaluator.toolchain.diagnostics import LineMap

_CODE_LINE = re.compile(r"[;{}]\s*\\?$|^\s*#\s*\w", re.MULTILINE)


class EmbeddedCode(NamedTuple):
    """String or file with code: all tokens, the parsed code with functions, a line map, and the first line.

    A file has no line map: all lines follow the first line.
    """

    all_tokens: list[Token]
    code: CodeTokens
    functions: list[Function]
    lines: LineMap | None
    first_line: int

    def line(self, token: Token) -> int:
        """Return the submission line of a token; the string's first line if the token's line is ambiguous."""
        if self.lines is None:
            return self.first_line + token.line - 1
        return self.lines.submission_line(token.line) or self.first_line


def docstrings(nodes: Sequence[ast.AST]) -> set[int]:
    """Return the ids of string nodes that are statements of their own."""
    return {id(node.value) for node in nodes if isinstance(node, ast.Expr)}


def texts(nodes: Sequence[ast.AST]) -> Iterator[tuple[ast.expr, str]]:
    """Yield every string expression of a module with its text. The text of an f-string omits replacement fields."""
    in_fstrings = {id(inner) for node in nodes if isinstance(node, ast.JoinedStr) for inner in ast.walk(node)}
    for node in nodes:
        match node:
            case ast.Constant(value=str() as text) if id(node) not in in_fstrings:
                yield node, text
            case ast.JoinedStr(values=values):
                constants = [value.value for value in values if isinstance(value, ast.Constant)]
                yield node, " ".join(str(value) for value in constants)
            case _:
                continue


def pieces(nodes: Sequence[ast.AST], source: str) -> list[EmbeddedCode]:
    """Find the strings with C++ or CUDA code, and tokenize the code."""
    aside = docstrings(nodes)
    result = []
    for node, text in texts(nodes):
        if id(node) in aside or _CODE_LINE.search(text) is None:
            continue
        all_tokens = tokens(text)
        code = CodeTokens(all_tokens)
        result.append(EmbeddedCode(all_tokens, code, code.functions(), LineMap(text, source), node.lineno))
    return result


def file_pieces(source: str) -> list[EmbeddedCode]:
    """Tokenize the C++ and CUDA files of a submission of several files."""
    result = []
    for file in cpp_files(source):
        all_tokens = tokens(file.text)
        code = CodeTokens(all_tokens)
        result.append(EmbeddedCode(all_tokens, code, code.functions(), None, file.lines_before + 1))
    return result


def calls(code: CodeTokens) -> Iterator[tuple[int, Token]]:
    """Yield calls with the index and token of the name before `(`, excluding member calls."""
    for index, token in enumerate(code.tokens):
        if token.kind is Kind.WORD and code.text(index + 1) == "(" and code.text(index - 1) not in (".", "->"):
            yield index, token
