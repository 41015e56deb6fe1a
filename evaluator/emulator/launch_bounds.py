"""`__launch_bounds__(N)`: a kernel that is launched with more threads in a block than N is refused, as on a GPU."""

import re
from collections.abc import Sequence

from evaluator.emulator.edits import Edits
from evaluator.emulator.lexer import Code, Function, Macro, flat, tokens

_BOUNDS = re.compile(r"__launch_bounds__|C10_LAUNCH_BOUNDS_[12]")


def check_bounds(code: Code, edits: Edits, functions: Sequence[Function], of_macros: dict[str, str]) -> None:
    """Have each kernel with a bound ask for it first thing: there its template's parameters have their values.

    `of_macros` has the bounds of macros, see `macro_bounds`.
    """
    for function in functions:
        bound = _bound(code, function, of_macros)
        if bound is not None:
            edits.insert_after(function.body[0], f" if (emu::beyond_bounds({bound})) return;")


def macro_bounds(macros: Sequence[Macro]) -> dict[str, str]:
    """Give the bounds that macros without parameters stand for, by the macros' names.

    >>> from evaluator.emulator.lexer import parse_define
    >>> macro_bounds([parse_define("#define BOUNDS __launch_bounds__(2 * 64, 4)")])
    {'BOUNDS': '2*64'}
    """
    found = {}
    for macro in macros:
        if not macro.parameters and _BOUNDS.search(macro.body):
            code = Code(tokens(macro.body, is_body=True))
            bound = next((text for index in range(len(code)) if (text := _argument(code, index)) is not None), None)
            if bound is not None:
                found[macro.name] = bound
    return found


def _bound(code: Code, function: Function, of_macros: dict[str, str]) -> str | None:
    """Give a kernel's bound as it is written; None where it has none, or a parameter hides what it names."""
    start = function.parameters[0]
    while start > 0 and code.text(start - 1) not in (";", "{", "}"):
        start -= 1
    head = range(start, function.parameters[0])
    if not any(code.text(index) == "__global__" for index in head):
        return None
    bounds = (_argument(code, index) or of_macros.get(code.text(index)) for index in head)
    bound = next((text for text in bounds if text is not None), None)
    return None if bound is None or _names(code, function) & set(re.findall(r"\w+", bound)) else bound


def _argument(code: Code, index: int) -> str | None:
    """Give the first argument of the `__launch_bounds__` at `index`."""
    if not _BOUNDS.fullmatch(code.text(index)) or code.text(index + 1) != "(" or index + 1 not in code.partner:
        return None
    parts = code.split(index + 2, code.partner[index + 1])
    return flat(code.tokens[slice(*parts[0])]) if parts else None


def _names(code: Code, function: Function) -> set[str]:
    """Give the names of a function's parameters."""
    parts = code.split(function.parameters[0] + 1, function.parameters[1])
    return {name for start, end in parts for name in list(code.words(start, end))[-1:]}
