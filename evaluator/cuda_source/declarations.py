"""Declarations of a .cu file, classified by target: device compiler, host compiler, or both.

Without macro expansion and type information, the classification can be wrong in rare cases. An error causes a compile
error or a missing symbol, and the build continues with the next step.
"""

import re
from collections.abc import Iterator, Mapping
from enum import Enum, auto
from typing import NamedTuple

from evaluator.cuda_source.lexer import CodeTokens, Kind, Token, macros, tokens


class NotSplittable(Exception):
    """The source cannot be split. The message states the reason."""


class Target(Enum):
    """Target of a declaration."""

    KERNEL = auto()
    """Definition in the device half, declaration in the host half."""
    DEVICE = auto()
    DEVICE_VARIABLE = auto()
    """Device half; also the host half if host code names the variable."""
    HOST = auto()
    EITHER = auto()
    """Type, constant, or function for both: each half with a reference to the name."""


class Item(NamedTuple):
    """Declaration: tokens from `start` to `end`, with a function's `body` and `parameters`."""

    side: Target
    start: int
    end: int
    parameters: int | None
    body: int | None
    names: frozenset[str]

    @property
    def name(self) -> str:
        """Name of a function."""
        return next(iter(self.names), "")


class Scope(NamedTuple):
    """Namespace or `extern "C"` block; `name_at` is the opening brace of an anonymous namespace."""

    name_at: int | None


class ParsedSource(NamedTuple):
    """Parsed file."""

    tokens: list[Token]
    code: CodeTokens
    items: list[Item]
    scopes: list[Scope]
    macros: dict[str, str]
    """Macro bodies by macro name."""


_ALIGNMENT = frozenset(("__align__", "alignas", "__attribute__", "__launch_bounds__", "decltype", "__declspec"))
_RECORDS = frozenset(("struct", "class", "union", "enum"))
_NEUTRAL = _RECORDS | {"using", "typedef", "static_assert"}
_DEVICE_WORDS = frozenset(("__device__", "__constant__", "__shared__", "__managed__"))
_COMPILER = re.compile(r"#[ \t]*(?:if|elif|ifdef|ifndef)\b[^\n]*\b(?:__CUDACC\w*|__NVCC__|__CUDACC_VER\w*)\b")


def take_apart(text: str) -> ParsedSource:
    """Parse a file into declarations. Raises NotSplittable."""
    source_tokens = tokens(text)
    code = CodeTokens(source_tokens)
    bodies = _macros(source_tokens)
    cutter = _Cutter(code, bodies)
    items = list(cutter.cut(0, len(code)))
    return ParsedSource(source_tokens, code, items, cutter.scopes, bodies)


def _macros(source_tokens: list[Token]) -> dict[str, str]:
    if any(token.kind is Kind.DIRECTIVE and _COMPILER.match(token.text) for token in source_tokens):
        raise NotSplittable("it looks different to nvcc and to g++")
    bodies: dict[str, str] = {}
    for macro, _ in macros(source_tokens):
        if macro.header.endswith(")") and re.search(r"\b__(?:global|device)__\b", macro.body):
            raise NotSplittable(f"the macro {macro.name} defines device code")
        bodies[macro.name] = macro.body
    return bodies


class _Cutter:
    def __init__(self, code: CodeTokens, macros: Mapping[str, str]) -> None:
        self._code = code
        self._macros = macros
        self.scopes: list[Scope] = []

    def cut(self, start: int, end: int) -> Iterator[Item]:
        index = start
        while index < end:
            if self._code.text(index) in (";", "}"):
                index += 1
            elif (brace := self._scope_brace(index)) is not None:
                close = self._partner(brace)
                anonymous = self._code.text(brace - 1) == "namespace"
                self.scopes.append(Scope(brace if anonymous else None))
                yield from self.cut(brace + 1, close)
                index = close + 1
            else:
                item = self._item(index, end)
                yield item
                index = item.end

    def _partner(self, index: int) -> int:
        if index not in self._code.partner:
            raise NotSplittable("brackets that do not pair")
        return self._code.partner[index]

    def _scope_brace(self, index: int) -> int | None:
        """Return the opening brace of the namespace or `extern "C"` block at `index`."""
        code = self._code
        if code.text(index) == "inline":
            index += 1
        if code.text(index) == "extern" and code.text(index + 1) == '"C"':
            return index + 2 if code.text(index + 2) == "{" else None
        if code.text(index) != "namespace":
            return None
        index += 1
        while code.kind(index) is Kind.WORD or code.text(index) == "::":
            index += 1
        return index if code.text(index) == "{" else None

    def _item(self, start: int, limit: int) -> Item:
        code = self._code
        begin = self._after_template_header(start)
        index, parameters, assigned, body = begin, None, False, None
        while index < limit:
            text = code.text(index)
            if text == ";":
                index += 1
                break
            if text == "=" and code.text(index - 1) != "operator":
                assigned = assigned or parameters is None
            if text == "(" and parameters is None and not assigned and self._names_function(index):
                parameters = index
            if text == "{" and parameters is not None and not assigned:
                body = index
                index = self._partner(index) + 1
                break
            index = self._partner(index) + 1 if text in ("(", "[", "{") else index + 1
        header_end = next((i for i in (parameters, body) if i is not None), index)
        side = self._side(start, begin, header_end, is_function=parameters is not None)
        names = frozenset(self._names(begin, index, parameters))
        return Item(side, start, index, parameters, body, names)

    def _after_template_header(self, index: int) -> int:
        while self._code.text(index) == "template" and self._code.text(index + 1) == "<":
            after = self._code.after_template(index + 1)
            if after is None:
                raise NotSplittable("a template header that cannot be read")
            index = after
        return index

    def _names_function(self, index: int) -> bool:
        before = self._code.text(index - 1)
        return self._code.kind(index - 1) is Kind.WORD and before not in _ALIGNMENT

    def _side(self, start: int, begin: int, header_end: int, *, is_function: bool) -> Target:
        code = self._code
        words = self.qualifiers(begin, header_end)
        first = code.text(begin)
        if "__global__" in words:
            # An explicit instantiation defines a kernel that the host half only calls.
            return Target.DEVICE if code.text(start) == "template" and start == begin else Target.KERNEL
        if words & _DEVICE_WORDS and first not in _NEUTRAL:
            if not is_function:
                return Target.DEVICE_VARIABLE
            return Target.EITHER if "__host__" in words else Target.DEVICE
        if first in _NEUTRAL or (first == "namespace" and code.text(begin + 2) == "="):
            return Target.EITHER if not is_function or first not in _RECORDS else Target.HOST
        if "constexpr" in words or ("const" in words and not is_function):
            return Target.EITHER
        return Target.HOST

    def qualifiers(self, start: int, end: int) -> set[str]:
        """Return the words outside brackets, including the words of expanded macros."""
        words: set[str] = set()
        index = start
        while index < end:
            if self._code.kind(index) is Kind.WORD:
                word = self._code.text(index)
                words |= {word, *re.findall(r"\w+", self._macros.get(word, ""))}
            index = self._code.after(index)
        return words

    def _names(self, begin: int, end: int, parameters: int | None) -> Iterator[str]:
        """Yield all names that a declaration may declare, possibly too many."""
        code = self._code
        if parameters is not None:
            yield code.text(parameters - 1)
            return
        if code.text(begin) in ("using", "typedef", "enum"):
            yield from code.words(begin + 1, end)
            return
        index = begin
        while index < end:
            text = code.text(index)
            if code.kind(index) is Kind.WORD and code.text(index + 1) in ("=", "[", "{", ";", ",", ":", "<", "final"):
                yield text
            index = code.after(index)
