"""Detection of full-size constants in a submission: failures of such code at a small size are inconclusive."""

import ast
import io
import itertools
import math
import re
import symtable
import tokenize
from collections.abc import Iterator, Mapping

from evaluator.cuda_source.lexer import Kind, Token, tokens
from evaluator.protocol.submission_files import ParsedPython, cpp_files, parsed_python
from evaluator.records import Constant

_MACRO = re.compile(r"\s*#\s*define\b")
_LEAST_NUMBER = 1000
_LEAST_ODD_NUMBER = 100
_WARP = 32
_LARGEST_BLOCK = 1024
_DRAWING_INPUTS = frozenset(("get_inputs", "get_init_inputs"))
_CODE_LINE = re.compile(r"[;{}]\s*\\?$|^\s*#", re.MULTILINE)


def hard_coded(
    source: str, full_constants: Mapping[str, Constant], small_constants: Mapping[str, Constant]
) -> list[tuple[int, int]]:
    r"""List the numbers in a submission that belong only to the problem's full size, with lines.

    Both mappings hold the problem's constants by name. A match is a full-size constant, or a product of two or of all
    constants. At least one of the constants must differ at the small size, and numbers of the small size never match.
    To exclude coincidences, a match must be at least 1000 but not 1024 (the maximal block size), or at least 100 and no
    multiple of 32.

    The search covers Python code, and strings and files with C++ code, but no comments, docstrings or other text. Code
    used only by `get_inputs` and `get_init_inputs` repeats the problem and is skipped.

    >>> hard_coded("rows = 4096\nprint(rows // 8)", {"rows": 4096, "dim": 512}, {"rows": 64, "dim": 512})
    [(4096, 1)]
    """
    full = _full_numbers(full_constants, small_constants)
    try:
        parsed = parsed_python(source)
        numbers = [*_python_numbers(parsed.tree), *_embedded_numbers(parsed), *_file_numbers(source)]
    except (SyntaxError, ValueError, RecursionError, tokenize.TokenError):
        return []
    return sorted({(number, line) for number, line in numbers if number in full}, key=lambda item: (item[1], item[0]))


def _full_numbers(full: Mapping[str, Constant], small: Mapping[str, Constant]) -> set[int]:
    changed = {name for name, value in full.items() if small.get(name, value) != value}
    numbers = _products(full, changed) - _products(small, set(small))
    return {number for number in numbers if _is_telling(number)}


def _products(constants: Mapping[str, Constant], telling: set[str]) -> set[int]:
    """Return all values, pair products and the total product, restricted to groups with a `telling` name."""
    values = [(name, number) for name, value in constants.items() for number in _integers(value)]
    groups = [*itertools.combinations(values, 1), *itertools.combinations(values, 2), tuple(values)]
    return {math.prod(n for _, n in group) for group in groups if any(name in telling for name, _ in group)}


def _integers(value: Constant) -> list[int]:
    if isinstance(value, list):
        return value
    return [value] if isinstance(value, int) and not isinstance(value, bool) else []


def _is_telling(number: int) -> bool:
    if number >= _LEAST_NUMBER:
        return number != _LARGEST_BLOCK
    return number >= _LEAST_ODD_NUMBER and number % _WARP != 0


def _python_numbers(tree: ast.Module) -> Iterator[tuple[int, int]]:
    for node in _working(tree):
        for inner in ast.walk(node):
            if isinstance(inner, ast.Constant) and (number := _whole(inner.value)) is not None:
                yield number, inner.lineno


def _working(tree: ast.Module) -> list[ast.stmt]:
    """Return the statements of the submission's own work: without input drawing, and constants for input drawing.

    The worklist visits each statement once, even for long chains of constants: from other statements to their
    constants, and on to the constants of these constants.
    """
    statements = [node for node in tree.body if not _is_aside(node)]
    makers: dict[str, list[int]] = {}
    for index, node in enumerate(statements):
        for name in _constant_targets(node):
            makers.setdefault(name, []).append(index)
    needed = {index for index, node in enumerate(statements) if not _constant_targets(node)}
    todo = list(needed)
    while todo:
        for name in _read_names(statements[todo.pop()]):
            constants = set(makers.pop(name, ())) - needed
            needed |= constants
            todo += constants
    return [node for index, node in enumerate(statements) if index in needed]


def _read_names(node: ast.stmt) -> set[str]:
    """Return the module's names that a statement reads: a parameter or a local variable of a function is another."""
    names: set[str] = set()
    tables = [symtable.symtable(ast.unparse(node), "", "exec")]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        inside = table.get_type() != "module"
        referenced = (symbol for symbol in table.get_symbols() if symbol.is_referenced())
        names |= {symbol.get_name() for symbol in referenced if symbol.is_global() or not inside}
    return names


def _is_aside(node: ast.stmt) -> bool:
    """Return whether a statement draws inputs or is a script section."""
    if isinstance(node, ast.FunctionDef):
        return node.name in _DRAWING_INPUTS
    return isinstance(node, ast.If) and "__main__" in ast.dump(node.test)


def _constant_targets(node: ast.stmt) -> set[str]:
    """Return the names assigned without a call; empty for all other statements."""
    if not isinstance(node, ast.Assign | ast.AnnAssign) or any(isinstance(inner, ast.Call) for inner in ast.walk(node)):
        return set()
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}


def _whole(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if math.isfinite(value) and value == int(value) else None


def _embedded_numbers(parsed: ParsedPython) -> Iterator[tuple[int, int]]:
    """Yield the numbers in C++ strings. The raw string text preserves the file's line numbers."""
    docstrings = {
        node.value.lineno
        for node in ast.walk(parsed.tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant | ast.JoinedStr)
    }
    string_types = [tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)]
    for file in parsed.files:
        for piece in tokenize.generate_tokens(io.StringIO(file.text).readline):
            line = piece.start[0] + file.lines_before
            if piece.type in string_types and line not in docstrings and _CODE_LINE.search(_unquoted(piece.string)):
                yield from _numbers_in(_unquoted(piece.string), line)


def _file_numbers(source: str) -> Iterator[tuple[int, int]]:
    """Yield the numbers in C++ and CUDA files."""
    for file in cpp_files(source):
        yield from _numbers_in(file.text, file.lines_before + 1)


def _numbers_in(code: str, first_line: int) -> Iterator[tuple[int, int]]:
    for token in _with_macros(code):
        if token.kind is Kind.NUMBER and (number := _cpp_number(token.text)) is not None:
            yield number, first_line + token.line - 1


def _with_macros(code: str) -> Iterator[Token]:
    """Yield the tokens of C++ code, with the tokens of macros instead of directives."""
    for token in tokens(code):
        macro = _MACRO.match(token.text) if token.kind is Kind.DIRECTIVE else None
        if macro is None:
            yield token
        else:
            inside = tokens(token.text[macro.end() :])
            yield from (inner._replace(line=token.line + inner.line - 1) for inner in inside)


def _unquoted(text: str) -> str:
    return re.sub(r"^\w*(?:'''|\"\"\"|'|\")|(?:'''|\"\"\"|'|\")$", "", text)


def _cpp_number(text: str) -> int | None:
    """Parse a C++ number; None for non-integers."""
    digits = text.replace("'", "").lower()
    try:
        if digits.startswith("0x"):
            return int(digits.rstrip("ulz"), 16)
        return _whole(float(digits.rstrip("ulzf")))
    except ValueError:
        return None
