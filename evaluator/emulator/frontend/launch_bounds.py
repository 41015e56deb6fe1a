"""`__launch_bounds__(N)`: refuse launches with more than N threads per block, as a GPU does."""

import re
from collections.abc import Sequence

from evaluator.cuda_source.edits import Edits
from evaluator.cuda_source.lexer import Code, Function, Macro, flat, tokens

_BOUNDS = re.compile(r"__launch_bounds__|C10_LAUNCH_BOUNDS_[12]")


def check_bounds(code: Code, edits: Edits, functions: Sequence[Function], of_macros: dict[str, str]) -> None:
    """Insert a check of the launch bound at the start of each bounded kernel, where template parameters have values.

    `of_macros` holds the bounds defined by macros (`macro_bounds`).
    """
    for function in functions:
        bound = _bound(code, function, of_macros)
        if bound is not None:
            edits.insert_after(function.body[0], f" if (emu::beyond_bounds({bound})) return;")


def macro_bounds(macros: Sequence[Macro]) -> dict[str, str]:
    """Map macros without parameters to the launch bounds in their bodies.

    >>> from evaluator.cuda_source.lexer import parse_define
    >>> macro_bounds([parse_define("#define BOUNDS __launch_bounds__(2 * 64, 4)")])
    {'BOUNDS': '2*64'}
    """
    bounds = {}
    for macro in macros:
        if not macro.parameters and _BOUNDS.search(macro.body):
            code = Code(tokens(macro.body, is_body=True))
            bound = next((text for index in range(len(code)) if (text := _argument(code, index)) is not None), None)
            if bound is not None:
                bounds[macro.name] = bound
    return bounds


def _bound(code: Code, function: Function, of_macros: dict[str, str]) -> str | None:
    """Return a kernel's bound as written; None without a bound, or if a parameter shadows a name in the bound."""
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
    """Return the first argument of the `__launch_bounds__` at `index`."""
    if not _BOUNDS.fullmatch(code.text(index)) or code.text(index + 1) != "(" or index + 1 not in code.partner:
        return None
    arguments = code.split(index + 2, code.partner[index + 1])
    return flat(code.tokens[slice(*arguments[0])]) if arguments else None


def _names(code: Code, function: Function) -> set[str]:
    """Return the names of a function's parameters."""
    parameters = code.split(function.parameters[0] + 1, function.parameters[1])
    return {name for start, end in parameters for name in list(code.words(start, end))[-1:]}
