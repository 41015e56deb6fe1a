"""Rewriting of `__shared__` declarations into references to memory of the emulator."""

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from evaluator.cuda_source.edits import Edits
from evaluator.cuda_source.lexer import DEVICE, CodeTokens, Function, Kind, Token, flat, tokens

_MACRO_SITES = 1 << 20
"""First site number inside macros; the preprocessor's counter gives each expansion a separate variable."""
_KEYWORDS = frozenset(("return", "else", "do"))
_ALIGNMENT = frozenset(("__align__", "alignas", "__attribute__"))
_DROPPED = frozenset(("__shared__", "static", "extern"))
_CV = frozenset(("const", "volatile", "__restrict__", "__restrict"))
_GREATER = re.compile(r"\[([^][]*>[^][]*)\]")
_NO_INITIALIZER = 'static_assert(sizeof(int) == 0, "an initializer is not allowed for a __shared__ variable"); (void)'


class _Shared(NamedTuple):
    """`__shared__` declaration: token indices from `start` to the `;` at `end`."""

    start: int
    end: int
    declarators: int
    dynamic: bool


class _Declarator(NamedTuple):
    """Declarator of one variable: start, name, end of the type suffix (start of an initializer), end."""

    start: int
    name: int
    suffix_end: int
    end: int


class SharedDeclarations:
    """Shared memory of one text. Each variable is a site with a unique number."""

    def __init__(
        self, code: CodeTokens, edits: Edits, sites: Iterator[int], functions: Sequence[Function], *, in_macro: bool
    ) -> None:
        """Number variables from `sites`. File-scope variables are declared inside each of `functions`."""
        self._code = code
        self._edits = edits
        self._sites = sites
        self._functions = functions
        self._in_macro = in_macro

    def edit(self) -> None:
        """Replace all declarations by references."""
        index = 0
        while index < len(self._code):
            if self._code.text(index) == "__shared__":
                end = _declaration_end(self._code, index)
                if (shared := shared_declaration(self._code, index, end)) is not None:
                    self._shared(shared)
                index = end
            index += 1

    def _shared(self, shared: _Shared) -> None:
        code = self._code
        if not self._in_macro and not code.in_function(shared.start):
            self._file_scope(shared)
            return
        type_name = self._named_record(shared) or flat(self._type_tokens(shared))
        self._drop_specifiers(shared)
        for declarator in declarators(code, shared.declarators, shared.end):
            if shared.dynamic:
                self._dynamic(type_name, declarator, shared.start)
            else:
                self._static(type_name, declarator, shared)

    def _static(self, type_name: str, declarator: _Declarator, shared: _Shared) -> None:
        storage = self._storage(type_name, declarator, shared)
        if declarator.suffix_end < declarator.end:
            storage += f"; {_NO_INITIALIZER} "
            if self._code.text(declarator.suffix_end) == "=":
                self._edits.blank(declarator.suffix_end, declarator.suffix_end + 1)
        self._edits.insert_after(declarator.suffix_end - 1, f" = {storage}")
        self._edits.insert_before(declarator.name, "(&")
        self._edits.insert_after(declarator.name, ")")

    def _storage(self, type_name: str, declarator: _Declarator, shared: _Shared) -> str:
        """Return the storage expression of a variable. An alignment beyond the type's alignment requires a struct."""
        site = str(next(self._sites)) if not self._in_macro else f"{_MACRO_SITES} + __COUNTER__"
        alignment = "".join(f" alignas({text})" for text in self._alignments(shared))
        if not alignment:
            return f"emu::shared<{self._without_name(type_name, declarator)}>({site})"
        name = self._code.text(declarator.name)
        variable = flat(self._code.tokens[declarator.start : declarator.suffix_end])
        self._edits.insert_before(shared.start, f"struct{alignment} emu_aligned_{name} {{ {type_name} {variable}; }}; ")
        return f"emu::shared<emu_aligned_{name}>({site}).{name}"

    def _without_name(self, type_name: str, declarator: _Declarator) -> str:
        code = self._code
        run = code.tokens[declarator.start : declarator.name] + code.tokens[declarator.name + 1 : declarator.suffix_end]
        return _as_argument(flat(tokens(f"{type_name} ")[:-1] + run))

    def _dynamic(self, type_name: str, declarator: _Declarator, start: int) -> None:
        """Replace `extern __shared__ T s[];` by a pointer to the block's dynamic shared memory.

        The nested `extern` declaration is never defined. The declaration makes g++ report conflicting types of one
        name, as nvcc does.
        """
        code = self._code
        name = declarator.name
        variable = flat(code.tokens[declarator.start : declarator.suffix_end])
        first = code.partner.get(name + 1, name) if code.text(name + 1) == "[" else name
        element = _as_argument(
            flat(
                tokens(type_name)
                + code.tokens[declarator.start : name]
                + code.tokens[first + 1 : declarator.suffix_end]
            )
        )
        self._edits.insert_before(start, f"{{ extern {type_name} {variable}; }} ")
        if first == name:
            self._edits.insert_before(name, "(&")
            self._edits.insert_after(declarator.suffix_end - 1, f") = *emu::dynamic_shared<{element}>()")
            return
        self._edits.insert_before(name, "(*")
        self._edits.insert_after(name, ")")
        self._edits.blank(name + 1, first + 1)
        self._edits.insert_after(declarator.suffix_end - 1, f" = emu::dynamic_shared<{element}>()")

    def _alignments(self, shared: _Shared) -> list[str]:
        code = self._code
        return [
            flat(code.tokens[index + 2 : code.partner[index + 1]])
            for index in range(shared.start, shared.end)
            if code.text(index) in ("__align__", "alignas") and index + 1 in code.partner
        ]

    def _type_tokens(self, shared: _Shared) -> list[Token]:
        code = self._code
        tokens, index = [], shared.start
        while index < shared.declarators:
            if code.text(index) in _ALIGNMENT:
                index = code.after_brackets(index)
                continue
            if code.text(index) not in _DROPPED:
                tokens.append(code.tokens[index])
            index += 1
        return tokens

    def _drop_specifiers(self, shared: _Shared) -> None:
        type_places = {token.place for token in self._type_tokens(shared)}
        for token in self._code.tokens[shared.start : shared.declarators]:
            if token.place not in type_places:
                self._edits.replace(token, "\n" * token.text.count("\n"))

    def _named_record(self, shared: _Shared) -> str | None:
        """Close a `struct {…}` or `union {…}` definition inside the declaration; return the type's name, else None."""
        code = self._code
        brace = next((i for i in range(shared.start, shared.declarators) if code.text(i) == "{"), None)
        if brace is None or brace not in code.partner:
            return None
        name = code.text(brace - 1)
        if name in ("struct", "union", "class"):
            name = f"emu_record_{code.tokens[brace].place}"
            self._edits.insert_before(brace, f" {name} ")
        self._edits.insert_after(code.partner[brace], f"; {name} ")
        return name

    def _file_scope(self, shared: _Shared) -> None:
        """Move a file-scope declaration into each device function that uses its names."""
        code = self._code
        text = flat(code.tokens[shared.start : shared.end])
        variables = [code.text(item.name) for item in declarators(code, shared.declarators, shared.end)]
        sites = itertools.count(next(self._sites))
        for _ in variables[1:]:
            next(self._sites)
        first = next(sites)
        self._edits.blank(shared.start, shared.end + 1)
        for function in self._functions:
            if function.body[0] > shared.end and self._uses(function, variables):
                self._edits.insert_after(function.body[0], _inner(text, first))

    def _uses(self, function: Function, variables: Sequence[str]) -> bool:
        code = self._code
        parameters = set(code.words(*function.parameters))
        return (
            bool(function.qualifiers & DEVICE)
            and not parameters & set(variables)
            and bool(set(variables) & set(code.words(*function.body)))
        )


def _inner(declaration: str, site: int) -> str:
    """Rewrite a declaration as in a function, numbering variables from `site`."""
    before, after = "void f() {", "}"
    all_tokens = tokens(f"{before} {declaration}; {after}")
    code = CodeTokens(all_tokens)
    edits = Edits(all_tokens, code)
    SharedDeclarations(code, edits, itertools.count(site), (), in_macro=False).edit()
    return edits.result()[len(before) : -len(after)]


def shared_declaration(code: CodeTokens, index: int, end: int) -> _Shared | None:
    """Parse the declaration that contains the `__shared__` at `index` and ends at `end`; None without a name."""
    start = _declaration_start(code, index)
    first = _first_declarator(code, start, end)
    if first is None:
        return None
    return _Shared(start, end, first, dynamic="extern" in code.words(start, first))


def _declaration_end(code: CodeTokens, index: int) -> int:
    while index < len(code) and code.text(index) not in (";", ")", "]", "}"):
        index = code.after(index)
    return index


def _declaration_start(code: CodeTokens, index: int) -> int:
    while index > 0:
        before = code.text(index - 1)
        if before == ")" and (opener := code.partner.get(index - 1)) and code.text(opener - 1) in _ALIGNMENT:
            index = opener - 1
        elif before == ">" and (name := code.before_template(index - 1)) is not None:
            index = name
        elif before == "::" or (code.kind(index - 1) is Kind.WORD and before not in _KEYWORDS):
            index -= 1
        else:
            break
    return index


def _first_declarator(code: CodeTokens, start: int, end: int) -> int | None:  # noqa: C901 -- one branch for each specifier
    """Return the index behind the specifiers: `*`, `(`, or the first variable's name."""
    index, has_type = start, False
    while index < end:
        text, after = code.text(index), code.text(index + 1)
        if text in _ALIGNMENT or text in ("decltype", "typeof", "__typeof__"):
            has_type = has_type or text not in _ALIGNMENT
            index = code.after_brackets(index)
        elif text in ("*", "&", "("):
            return index if has_type else None
        elif text in _DROPPED or text in _CV or text in ("typename", "struct", "union", "class", "enum", "::"):
            index += 1
            if code.text(index) == "{":
                has_type = True
                index = code.after(index)
        elif code.kind(index) is not Kind.WORD:
            return None
        elif after == "<" and (past := code.after_template(index + 1)) is not None:
            has_type, index = True, past
        elif after == "{" and code.text(index - 1) in ("struct", "union", "class"):
            has_type, index = True, code.after_brackets(index)
        elif after == "::":
            index += 2
        elif has_type and (index + 1 >= end or after in ("[", ",", "=", "{", "(")):
            return index
        else:
            has_type, index = True, index + 1
    return None


def declarators(code: CodeTokens, start: int, end: int) -> list[_Declarator]:
    """Split a declaration into declarators."""
    result = []
    for first, stop in code.split(start, end):
        names = (i for i in range(first, stop) if code.kind(i) is Kind.WORD and code.text(i) not in _CV)
        name = next(names, None)
        if name is not None:
            suffix = name + 1
            while code.text(suffix) in ("[", ")") and suffix < stop:
                suffix = code.after(suffix)
            result.append(_Declarator(first, name, suffix, stop))
    return result


def _as_argument(type_name: str) -> str:
    """Return a type as a template's argument, which a `>` in an extent would end outside of parentheses.

    >>> _as_argument("float[a > b ? a : b][4]")
    'float[(a > b ? a : b)][4]'
    """
    return _GREATER.sub(r"[(\1)]", type_name)
