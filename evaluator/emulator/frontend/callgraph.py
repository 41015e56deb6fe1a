"""Kernels whose threads wait for each other, told from all others, and kernels with `__launch_bounds__(N)`.

A launch with more than N threads per block is refused, as on a GPU.
"""

import re
from collections.abc import Sequence

from evaluator.cuda_source.edits import Edits
from evaluator.cuda_source.lexer import DEVICE, CodeTokens, Function, Kind, Macro, Token, flat, includes, macros, tokens
from evaluator.emulator.headers import LIBRARY_HEADER

_BOUNDS = re.compile(r"__launch_bounds__|C10_LAUNCH_BOUNDS_[12]")


def check_bounds(code: CodeTokens, edits: Edits, functions: Sequence[Function], of_macros: dict[str, str]) -> None:
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
            code = CodeTokens(tokens(macro.body, is_body=True))
            bound = next((text for index in range(len(code)) if (text := _argument(code, index)) is not None), None)
            if bound is not None:
                bounds[macro.name] = bound
    return bounds


def _bound(code: CodeTokens, function: Function, of_macros: dict[str, str]) -> str | None:
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


def _argument(code: CodeTokens, index: int) -> str | None:
    """Return the first argument of the `__launch_bounds__` at `index`."""
    if not _BOUNDS.fullmatch(code.text(index)) or code.text(index + 1) != "(" or index + 1 not in code.partner:
        return None
    arguments = code.split(index + 2, code.partner[index + 1])
    return flat(code.tokens[slice(*arguments[0])]) if arguments else None


def _names(code: CodeTokens, function: Function) -> set[str]:
    """Return the names of a function's parameters."""
    parameters = code.split(function.parameters[0] + 1, function.parameters[1])
    return {name for start, end in parameters for name in list(code.words(start, end))[-1:]}


_WAITS = re.compile(
    r"__syncthreads\w*|__syncwarp|__barrier_sync\w*|__\w+_sync|__shfl\w*|__any|__all|__ballot|__activemask"
    r"|sync|barrier_\w+|shfl\w*|ballot|match_any|match_all"
    r"|this_thread_block|this_grid|tiled_partition|labeled_partition|binary_partition|coalesced_threads"
    r"|thread_block\w*|coalesced_group|cub|(?:Block|Warp)(?:Reduce|Scan|Exchange|Load|Store|RadixSort|Merge\w*)"
)


class CallGraph:
    """References between functions and macros by name, over all sources of an extension.

    A name stands for all functions and macros with the name. Where names cannot decide (a call through a pointer or
    functor, a barrier outside all device functions), threads are assumed to wait: slower, but always correct.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        """Read the functions and macros of all `texts`."""
        self._mentions: dict[str, set[str]] = {}
        self._kernels: set[str] = set()
        self._opaque: set[str] = set()
        self._everywhere = False
        sources = [tokens(text) for text in texts]
        defined = [macro for source in sources for macro, _ in macros(source)]
        self.macro_bounds = macro_bounds(defined)
        for macro in defined:
            self._mentions.setdefault(macro.name, set()).update(macro.words)
        device = DEVICE | {macro.name for macro in defined if DEVICE & macro.words}
        for source in sources:
            self._everywhere = self._everywhere or _includes_unseen(source)
            self._read(CodeTokens(source), device)

    def is_kernel(self, name: str) -> bool:
        """Return whether a kernel has this name."""
        return name in self._kernels

    def waits(self, kernel: str) -> bool:
        """Return whether threads of `kernel` may wait for each other; True if undecidable."""
        if self._everywhere or kernel not in self._kernels:
            return True
        reached, todo = {kernel}, [kernel, "operator"]
        while todo:
            name = todo.pop()
            if name in self._opaque or _WAITS.fullmatch(name):
                return True
            new = self._mentions.get(name, set()) - reached
            reached |= new
            todo += new
        return False

    def _read(self, code: CodeTokens, device: frozenset[str]) -> None:
        inside = [False] * len(code)
        for function in code.outermost():
            words = set(code.words(function.parameters[0], function.body[1]))
            self._mentions.setdefault(function.name, set()).update(words)
            if "__global__" in function.qualifiers:
                self._kernels.add(function.name)
            if _calls_parameter(code, function):
                self._opaque.add(function.name)
            if function.qualifiers & device:
                inside[function.parameters[0] : function.body[1]] = [True] * (function.body[1] - function.parameters[0])
        self._everywhere = self._everywhere or any(
            token.kind is Kind.WORD and not inside[index] and _WAITS.fullmatch(token.text)
            for index, token in enumerate(code.tokens)
        )


def _includes_unseen(source: Sequence[Token]) -> bool:
    """Return whether a source includes a file of the submission, which may define anything."""
    return any(include.quoted and not LIBRARY_HEADER.fullmatch(include.name) for include in includes(source))


def _calls_parameter(code: CodeTokens, function: Function) -> bool:
    """Return whether a function calls one of its parameters: the callee is unknown."""
    names = set()
    for start, end in code.split(function.parameters[0] + 1, function.parameters[1]):
        names.update(list(code.words(start, end))[-1:])
        pointers = (index + 1 for index in range(start, end) if code.text(index - 1) + code.text(index) == "(*")
        names.update(map(code.text, pointers))
    return any(
        code.text(index) in names and code.text(index + 1) == "(" and code.text(index - 1) not in (".", "->", "::")
        for index in range(*function.body)
    )
