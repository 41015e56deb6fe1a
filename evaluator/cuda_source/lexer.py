"""Lexer for CUDA C++, and the structure visible without a compiler: brackets, blocks, function definitions.

The lexer expands and drops nothing: the concatenated tokens equal the input. `<<<` is one token. `>` is always a single
token, because only the context decides whether `>>>` ends a launch or three template argument lists.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, auto
from typing import NamedTuple

DEVICE = frozenset(("__global__", "__device__"))
"""Qualifiers of device functions."""


class Kind(Enum):
    """Kind of a token."""

    SPACE = auto()
    COMMENT = auto()
    DIRECTIVE = auto()
    WORD = auto()
    NUMBER = auto()
    STRING = auto()
    PUNCTUATOR = auto()


class Token(NamedTuple):
    """Token of the text. `line` counts from 1; `place` is the token's index in the text."""

    kind: Kind
    text: str
    line: int
    place: int


class Macro(NamedTuple):
    """Macro definition. `header` is the text before the body; `parameters` is empty for an object-like macro."""

    name: str
    parameters: frozenset[str]
    header: str
    body: str

    @property
    def words(self) -> set[str]:
        """Words of the body."""
        return {token.text for token in tokens(self.body, is_body=True) if token.kind is Kind.WORD}


class Include(NamedTuple):
    """`#include` directive: header name, quoted or not, and the directive's token."""

    name: str
    quoted: bool
    token: Token


class Function(NamedTuple):
    """Function definition: name, qualifiers, and the token ranges of parameters and body (indices into the code)."""

    name: str
    qualifiers: frozenset[str]
    parameters: tuple[int, int]
    body: tuple[int, int]


_SPLICE = r"\\\r?\n"
_LINE_COMMENT = rf"//(?:{_SPLICE}|[^\n])*+"
_PLAIN_STRING = r'"(?:\\(?:\r\n|[\s\S])|[^"\\\n])*+"'

_TOKEN = re.compile(
    rf"""
      (?P<SPACE>(?:\s|{_SPLICE})++)
    | (?P<COMMENT>{_LINE_COMMENT} | /\*[\s\S]*?(?:\*/|\Z))
    | (?P<STRING>
          (?:u8|[uUL])?R"(?P<delimiter>[^()\\\s]{{0,16}})\([\s\S]*?(?:\)(?P=delimiter)"|\Z)
        | (?:u8|[uUL])?{_PLAIN_STRING}
        | (?:u8|[uUL])?'(?:\\[\s\S]|[^'\\\n])++' )
    | (?P<NUMBER>\.?[0-9](?:[eEpP][+-]|'?[0-9A-Za-z_]|\.)*+)
    | (?P<WORD>[^\W\d][\w$]*+)
    | (?P<PUNCTUATOR><<<|<<=|<=>|<<|<=|>=|->\*?|::|\.\.\.|[=!+\-*/%&|^]=|&&|\|\||\+\+|--|\#\#|[\s\S])
    """,
    re.VERBOSE,
)
_DIRECTIVE = re.compile(rf"\#(?:{_SPLICE}|{_LINE_COMMENT}|/\*[\s\S]*?(?:\*/|\Z)|{_PLAIN_STRING}|[^\n])*+", re.VERBOSE)
_INCLUDE = re.compile(r'#\s*include\s*(?:<(?P<name>[^>]+)>|"(?P<own>[^"]+)")')
_DEFINE = re.compile(rf"\#(?:[ \t]|{_SPLICE})*define(?:[ \t]|{_SPLICE})+(?P<name>\w+)(?P<parameters>\([^)]*\))?")

_NOT_FUNCTIONS = (
    "if", "for", "while", "switch", "catch", "return", "sizeof", "alignof", "alignas", "decltype", "typeof",
    "constexpr", "noexcept", "throw", "requires", "static_assert", "defined", "__attribute__", "__align__",
    "__launch_bounds__", "__device__", "__host__", "__declspec", "asm", "__asm__", "new", "delete",
)  # fmt: skip
_AFTER_PARAMETERS = frozenset(("const", "volatile", "noexcept", "override", "final", "mutable", "&", "&&"))
_CLOSERS = {")": "(", "]": "[", "}": "{"}


def tokens(text: str, *, is_body: bool = False) -> list[Token]:
    """Tokenize `text`. In a macro body (`is_body`), a leading `#` is an operator, not a directive.

    >>> [token.text for token in tokens("k<<<1, n>>>(x); // go")]
    ['k', '<<<', '1', ',', ' ', 'n', '>', '>', '>', '(', 'x', ')', ';', ' ', '// go']
    """
    result: list[Token] = []
    line, position, at_line_start, last = 1, 0, not is_body, ""
    while position < len(text):
        kind, piece = _next(text, position, at_line_start=at_line_start)
        if piece == "<<<" and last == "operator":  # operator<<<T>(…) is operator<< with a template argument.
            piece = "<<"
        result.append(Token(kind, piece, line, len(result)))
        if kind is Kind.SPACE:
            at_line_start = at_line_start or "\n" in re.sub(_SPLICE, "", piece)
        elif kind is not Kind.COMMENT:
            at_line_start, last = False, piece
        line += piece.count("\n")
        position += len(piece)
    return result


def _next(text: str, position: int, *, at_line_start: bool) -> tuple[Kind, str]:
    if at_line_start and (directive := _DIRECTIVE.match(text, position)):
        return Kind.DIRECTIVE, directive[0]
    match = _TOKEN.match(text, position)
    if match is None or match.lastgroup is None:  # Unreachable: the last alternative matches any character.
        raise AssertionError(position)
    return Kind[match.lastgroup], match[0]


def parse_define(directive: str) -> Macro | None:
    """Parse a `#define`; None for any other directive.

    >>> parse_define("#define TWICE(x) ((x) * 2)")
    Macro(name='TWICE', parameters=frozenset({'x'}), header='#define TWICE(x)', body=' ((x) * 2)')
    """
    match = _DEFINE.match(directive)
    if match is None:
        return None
    names = frozenset(re.findall(r"\w+", match["parameters"] or ""))
    if "..." in (match["parameters"] or ""):
        names |= {"__VA_ARGS__"}
    return Macro(match["name"], names, match[0], directive[match.end() :])


def macros(source: Iterable[Token]) -> Iterator[tuple[Macro, Token]]:
    """Yield the macros defined in `source`, with their directives."""
    for token in source:
        if token.kind is Kind.DIRECTIVE and (macro := parse_define(token.text)) is not None:
            yield macro, token


def includes(source: Iterable[Token]) -> Iterator[Include]:
    """Yield the include directives of `source`."""
    for token in source:
        if token.kind is Kind.DIRECTIVE and (match := _INCLUDE.match(token.text)) is not None:
            yield Include(match["name"] or match["own"], match["name"] is None, token)


class CodeTokens:
    """Tokens visible to a compiler (no space, comments or directives), with paired brackets.

    Unpaired brackets have no partner, for example if both branches of an `#if` open the same block.
    """

    def __init__(self, all_tokens: Iterable[Token]) -> None:
        """Filter the tokens and pair the brackets."""
        unseen = (Kind.SPACE, Kind.COMMENT, Kind.DIRECTIVE)
        self.tokens: list[Token] = [token for token in all_tokens if token.kind not in unseen]
        self.partner: dict[int, int] = {}
        self._block: list[int | None] = []
        self._functions: list[Function] | None = None
        self._pair()
        self._nest()

    def _pair(self) -> None:
        open_: dict[str, list[int]] = {opener: [] for opener in _CLOSERS.values()}
        for index, token in enumerate(self.tokens):
            if token.kind is not Kind.PUNCTUATOR:
                continue
            if token.text in open_:
                open_[token.text].append(index)
            elif token.text in _CLOSERS and (same := open_[_CLOSERS[token.text]]):
                start = same.pop()
                self.partner[index], self.partner[start] = start, index
                for unclosed in open_.values():  # Brackets opened later and not yet closed stay unpaired.
                    while unclosed and unclosed[-1] > start:
                        unclosed.pop()

    def _nest(self) -> None:
        """Record the innermost enclosing `{` of each token. An unpaired brace extends to the end."""
        around: list[int] = []
        for index, token in enumerate(self.tokens):
            if token.text == "}" and around and self.partner.get(index) == around[-1]:
                around.pop()
            self._block.append(around[-1] if around else None)
            if token.text == "{":
                around.append(index)

    def __len__(self) -> int:
        return len(self.tokens)

    def text(self, index: int) -> str:
        """Return the text at `index`; empty outside the code."""
        return self.tokens[index].text if 0 <= index < len(self.tokens) else ""

    def kind(self, index: int) -> Kind | None:
        """Return the kind at `index`; None outside the code."""
        return self.tokens[index].kind if 0 <= index < len(self.tokens) else None

    def after(self, index: int) -> int:
        """Return the index behind the bracket group opened at `index`, or behind the token; never moves backwards."""
        return max(self.partner.get(index, index), index) + 1

    def after_brackets(self, index: int) -> int:
        """Return the index behind the token at `index` and an immediately following bracket group."""
        return max(self.partner.get(index + 1, index), index) + 1

    def words(self, start: int, end: int) -> Iterator[str]:
        """Return the words in the range from `start` to `end`."""
        return (token.text for token in self.tokens[start:end] if token.kind is Kind.WORD)

    def adjacent(self, index: int, text: str) -> bool:
        """Return whether the single-character tokens of `text` stand at `index` without gaps."""
        run = self.tokens[index : index + len(text)]
        return [token.text for token in run] == list(text) and all(
            after.place == before.place + 1 for before, after in itertools.pairwise(run)
        )

    def after_template(self, index: int) -> int | None:
        """Return the index behind the `>` matching the `<` at `index`; None if the `<` is a comparison."""
        depth = 0
        while index < len(self.tokens):
            text = self.text(index)
            if text == "<":
                depth += 1
            elif text == ">":
                depth -= 1
                if depth == 0:
                    return index + 1
            elif text in ("(", "[", "{"):
                if index not in self.partner:
                    return None
                index = self.partner[index]
            elif text in (")", "]", "}", ";", "&&", "||", "<<<"):
                return None
            index += 1
        return None

    def before_template(self, index: int) -> int | None:
        """Return the index before the `<` matching the `>` at `index`; None without a match."""
        depth = 0
        while index >= 0:
            text = self.text(index)
            if text == ">":
                depth += 1
            elif text == "<":
                depth -= 1
                if depth == 0:
                    return index - 1
            elif text in (")", "]", "}"):
                if index not in self.partner:
                    return None
                index = self.partner[index]
            elif text in ("(", "[", "{", ";", "<<<"):
                return None
            index -= 1
        return None

    def split(self, start: int, end: int) -> list[tuple[int, int]]:
        """Split the range at top-level commas, outside brackets and template arguments."""
        ranges, begin, index = [], start, start
        while index < end:
            if index in self.partner and self.partner[index] > index:
                index = self.partner[index]
            elif self.text(index) == "<" and self.kind(index - 1) is Kind.WORD:
                after = self.after_template(index)
                index = after - 1 if after is not None and after <= end else index
            elif self.text(index) == ",":
                ranges.append((begin, index))
                begin = index + 1
            index += 1
        return [*ranges, (begin, end)] if end > start else []

    def in_function(self, index: int) -> bool:
        """Return whether `index` is inside a block other than a namespace or `extern "C"`."""
        block = self._block[index]
        if block is None:
            return False
        before = {self.text(i) for i in range(max(block - 4, 0), block)}
        return not before & {"namespace", '"C"'}

    def lambda_before(self, index: int) -> bool:
        """Return whether the `{` at `index` opens a lambda body."""
        before = index - 1
        while before > 0 and self.text(before) in ("mutable", "noexcept", "constexpr", "__device__", "__host__"):
            before -= 1
        if self.text(before) == ")" and before in self.partner:
            before = self.partner[before] - 1
            while self.text(before) in ("__device__", "__host__"):
                before -= 1
        return self.text(before) == "]"

    def functions(self) -> list[Function]:
        """Return the function definitions, ordered by the position of their names."""
        if self._functions is None:
            self._functions = list(self._defined())
        return self._functions

    def _defined(self) -> Iterator[Function]:
        for index in range(1, len(self.tokens)):
            if self.text(index) == "(" and index in self.partner:
                name = self._name_before(index)
                body = self._body_after(self.partner[index]) if name is not None else None
                if name is not None and body is not None:
                    parameters = (index, self.partner[index])
                    end = self.partner.get(body, len(self.tokens))
                    yield Function(name, self._qualifiers(index), parameters, (body, end))

    def outermost(self) -> list[Function]:
        """Return the function definitions outside other function definitions."""
        functions: list[Function] = []
        for function in self.functions():
            if not functions or function.body[0] > functions[-1].body[1]:
                functions.append(function)
        return functions

    def _name_before(self, index: int) -> str | None:
        start = index - 1
        while start >= 0 and self.text(start) not in ("operator", ";", "{", "}", "(", ")", ","):
            start -= 1
        if self.text(start) == "operator" and self.text(index + 1) + self.text(index + 2) != ")(":
            return "operator"
        if self.text(start) == ")" and self.text(start - 2) == "operator":
            return "operator"
        if self.kind(index - 1) is Kind.WORD and self.text(index - 1) not in _NOT_FUNCTIONS:
            return self.text(index - 1)
        return None

    def _body_after(self, index: int) -> int | None:
        """Return the `{` of the function body for parameters that end at `index`."""
        index += 1
        while self.text(index) in _AFTER_PARAMETERS:
            index += 1
            if self.text(index) == "(":
                index = self.after(index)
        if self.text(index) == "->":
            while index < len(self) and self.text(index) not in ("{", ";", "}", ")", "]"):
                index = self.after(index)
        elif self.text(index) == ":":
            index = self._after_initializers(index + 1)
        return index if self.text(index) == "{" else None

    def _after_initializers(self, index: int) -> int:
        """Skip a constructor's initializer list: `member(x), other{y}`."""
        while self.kind(index) is Kind.WORD and self.text(index + 1) in ("(", "{"):
            index = self.after_brackets(index)
            if self.text(index) != ",":
                break
            index += 1
        return index

    def _qualifiers(self, index: int) -> frozenset[str]:
        start = index - 1
        while start >= 0 and self.text(start) not in (";", "{", "}", ":"):
            start -= 1
        return frozenset(self.words(start + 1, index))


def flat(run: Sequence[Token]) -> str:
    r"""Join tokens into one line, with spaces between adjacent words.

    >>> flat(CodeTokens(tokens("unsigned // of course\n int[ 3 ]")).tokens)
    'unsigned int[3]'
    """
    text = ""
    for token in run:
        piece = token.text.replace("\n", " ")
        apart = text and (text[-1].isalnum() or text[-1] == "_") and (piece[0].isalnum() or piece[0] == "_")
        text += f" {piece}" if apart else piece
    return text
