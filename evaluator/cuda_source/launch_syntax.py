"""Parts of a launch `kernel<<<config>>>(arguments)`, and mistakes in C++ that need no compiler.

The mistakes are comments, strings and launches without an end, and launched functions that are no kernels.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from evaluator.cuda_source.lexer import CodeTokens, Function, Kind, Token, macros

KEYWORDS = frozenset(("return", "else", "do"))


def kernel_start(code: CodeTokens, launch: int) -> int | None:
    """Return the start of the kernel expression before the `<<<` at `launch`; None without an expression."""
    index: int | None = launch - 1
    while index is not None:
        first = _operand_start(code, index)
        if first is None:
            return None
        before = code.text(first - 1)
        if before == "template":
            first -= 1
            before = code.text(first - 1)
        if before == "::" and not _is_scope(code, first - 2):
            return first - 1
        if before not in ("::", ".", "->"):
            return first
        index = first - 2
    return None


def _is_scope(code: CodeTokens, index: int) -> bool:
    """Return whether `::` after `index` continues a qualified name, rather than starting a global name."""
    return code.text(index) == ">" or (code.kind(index) is Kind.WORD and code.text(index) not in KEYWORDS)


def _operand_start(code: CodeTokens, index: int) -> int | None:
    """Return the start of the operand that ends at `index`: a name with template arguments, calls and subscripts."""
    while True:
        text = code.text(index)
        if text == ">":
            before = code.before_template(index)
            return before if before is not None and code.kind(before) is Kind.WORD else None
        if code.kind(index) is Kind.WORD:
            return index
        if text not in (")", "]") or index not in code.partner:
            return None
        opener = code.partner[index]
        called = code.kind(opener - 1) is Kind.WORD and code.text(opener - 1) not in KEYWORDS
        statement = code.text(opener - 1) in ("if", "while", "for", "switch", "constexpr")
        if text == ")" and (not called or statement):
            return opener
        index = opener - 1


def config_end(code: CodeTokens, launch: int) -> int | None:
    """Return the index of the first `>` of the `>>>` matching the `<<<` at `launch`."""
    return _config_end(code, launch, templates=True) or _config_end(code, launch, templates=False)


def _config_end(code: CodeTokens, launch: int, *, templates: bool) -> int | None:
    index = launch + 1
    while index < len(code):
        text = code.text(index)
        if code.adjacent(index, ">>>") and code.text(index + 3) == "(":
            return index
        if text in (";", ")", "]", "}", "<<<"):
            return None
        if index in code.partner:
            index = code.partner[index]
        elif templates and text == "<" and code.kind(index - 1) is Kind.WORD:
            after = code.after_template(index)
            index = after - 1 if after is not None else index
        index += 1
    return None


def kernel_name(code: CodeTokens, start: int, end: int) -> str | None:
    """Return the plain name of a launched kernel; None for a computed kernel."""
    start, end = without_parentheses(code, start, end)
    if code.text(end - 1) == ">":
        before = code.before_template(end - 1)
        end = before + 1 if before is not None else end
    return code.text(end - 1) if code.kind(end - 1) is Kind.WORD else None


def without_parentheses(code: CodeTokens, start: int, end: int) -> tuple[int, int]:
    """Return the range inside of all parentheses that enclose a whole expression."""
    while code.text(start) == "(" and code.partner.get(start) == end - 1:
        start, end = start + 1, end - 1
    return start, end


def has_braced_argument(code: CodeTokens, close: int) -> bool:
    """Return whether an argument behind the `>>>` at `close` is a list in braces without a type."""
    arguments = code.split(close + 4, code.partner.get(close + 3, close))
    return any(code.text(start) == "{" for start, _ in arguments)


def knows_parameters(code: CodeTokens, functions: Sequence[Function], launch: int) -> bool:
    """Return whether the kernel before the `<<<` at `launch` has template arguments, or is one plain function."""
    name = kernel_name(code, launch - 1, launch)
    same = [function for function in functions if function.name == name]
    plain = len(same) == 1 and "template" not in same[0].qualifiers
    return code.text(launch - 1) == ">" or plain


RAW_STRING = (
    'Close the string in its line. If the string contains \\n, begin the Python string with r (r"""..."""): otherwise '
    "Python turns \\n into a line break."
)
CLOSE_COMMENT = "Close the comment with */."
CLOSE_LAUNCH = "Close the parenthesis: kernel<<<blocks, threads>>>(arguments);"
LAUNCH_KERNEL = "Write __global__ before the definition of the launched function."
_CONDITION = re.compile(r"#\s*(?P<word>if|endif)")
_MODULE = "PYBIND11_MODULE"


class Mistake(NamedTuple):
    """Mistake in a line of a text, with the next step."""

    message: str
    next_step: str
    line: int


def unfinished(source: list[Token]) -> Mistake | None:
    r"""Return the first comment, string or launch without an end; None in parts that the preprocessor may leave out.

    >>> from evaluator.cuda_source.lexer import tokens
    >>> unfinished(tokens('int f() {\n  puts("a\n");\n}')).line
    2
    """
    for token in _unconditional(source):
        if token.kind is Kind.COMMENT and token.text.startswith("/*") and not _is_closed(token.text):
            return Mistake("a comment has no end", CLOSE_COMMENT, token.line)
        if token.kind is Kind.PUNCTUATOR and token.text == '"':
            return Mistake("a string has no end in its line", RAW_STRING, token.line)
    return _open_launch(CodeTokens(_unconditional(source)))


def _open_launch(code: CodeTokens) -> Mistake | None:
    """Return a launch with a `(` that the statement does not close; None for statements with lambdas or lists."""
    for launch in [index for index, token in enumerate(code.tokens) if token.text == "<<<"]:
        end, depth = launch, 0
        while end < len(code) and code.text(end) not in (";", "{", "}"):
            depth += {"(": 1, ")": -1}.get(code.text(end), 0)
            end += 1
        if code.text(end) == ";" and depth > 0:
            return Mistake("a launch has a ( without its )", CLOSE_LAUNCH, code.tokens[launch].line)
    return None


def launched_function(sources: Sequence[list[Token]]) -> tuple[int, Mistake] | None:
    r"""Return the index of the source with a launch of a function that no source marks `__global__`, and the mistake.

    nvcc refuses such a launch; the emulator would run the function. With a macro for `__global__`, None.

    >>> from evaluator.cuda_source.lexer import tokens
    >>> launched_function([tokens("void f() {}\nvoid g() { f<<<1, 2>>>(); }")])[1].line
    2
    """
    if any("__global__" in macro.words for source in sources for macro, _ in macros(source)):
        return None
    codes = [CodeTokens(source) for source in sources]
    functions = {function.name for code in codes for function in code.functions()}
    functions -= {name for code in codes for name in _global_names(code)}
    for number, code in enumerate(codes):
        for index, token in enumerate(code.tokens):
            start = kernel_start(code, index) if token.text == "<<<" else None
            name = None if start is None else kernel_name(code, start, index)
            if name in functions:
                message = f"{name} is launched, but is no kernel: the function has no __global__"
                return number, Mistake(message, LAUNCH_KERNEL, token.line)
    return None


def _global_names(code: CodeTokens) -> Iterator[str]:
    """Yield the words before each `(` of definitions and declarations marked `__global__`."""
    is_global = False
    for index, token in enumerate(code.tokens):
        is_global = token.text == "__global__" or (is_global and token.text not in ("{", ";"))
        if is_global and code.text(index + 1) == "(":
            yield token.text


def second_module(source: list[Token], name: str) -> Mistake | None:
    """Return the definition of a Python module called `name`, beside the module that `load_inline` generates."""
    certain = list(_unconditional(source))
    if any(token.kind is Kind.DIRECTIVE and _MODULE in token.text for token in certain):
        return None
    code = CodeTokens(certain)
    for index, token in enumerate(code.tokens):
        is_module = token.text == _MODULE and code.text(index + 1) == "("
        if is_module and code.text(index + 2) in ("TORCH_EXTENSION_NAME", name):
            step = "Remove one of the two: functions=, or the PYBIND11_MODULE."
            message = f"functions=[...] generates a Python module, and the sources define another one: {_MODULE}"
            return Mistake(message, step, token.line)
    return None


def _is_closed(comment: str) -> bool:
    return len(comment) > len("/*/") and comment.endswith("*/")


def _unconditional(source: list[Token]) -> Iterator[Token]:
    """Yield the tokens outside of all conditional directives, up to the first token that hides the rest."""
    depth = 0
    for token in source:
        if token.kind is Kind.DIRECTIVE and (match := _CONDITION.match(token.text)) is not None:
            depth += 1 if match["word"] == "if" else -1
        elif depth == 0:
            yield token
        elif token.text == '"' or (token.kind is Kind.COMMENT and "\n" in token.text):
            return  # In a part that is left out, a quote or a comment may hide the end of the part.
