"""The parts of a launch `kernel<<<config>>>(arguments)`, found among the tokens around its `<<<`."""

from collections.abc import Sequence

from evaluator.cuda_source.lexer import Code, Function, Kind

KEYWORDS = frozenset(("return", "else", "do"))


def kernel_start(code: Code, launch: int) -> int | None:
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


def _is_scope(code: Code, index: int) -> bool:
    """Return whether `::` after `index` continues a qualified name, rather than starting a global name."""
    return code.text(index) == ">" or (code.kind(index) is Kind.WORD and code.text(index) not in KEYWORDS)


def _operand_start(code: Code, index: int) -> int | None:
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


def config_end(code: Code, launch: int) -> int | None:
    """Return the index of the first `>` of the `>>>` matching the `<<<` at `launch`."""
    return _config_end(code, launch, templates=True) or _config_end(code, launch, templates=False)


def _config_end(code: Code, launch: int, *, templates: bool) -> int | None:
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


def kernel_name(code: Code, start: int, end: int) -> str | None:
    """Return the plain name of a launched kernel; None for a computed kernel."""
    start, end = without_parentheses(code, start, end)
    if code.text(end - 1) == ">":
        before = code.before_template(end - 1)
        end = before + 1 if before is not None else end
    return code.text(end - 1) if code.kind(end - 1) is Kind.WORD else None


def without_parentheses(code: Code, start: int, end: int) -> tuple[int, int]:
    """Return the range inside of all parentheses that enclose a whole expression."""
    while code.text(start) == "(" and code.partner.get(start) == end - 1:
        start, end = start + 1, end - 1
    return start, end


def has_braced_argument(code: Code, close: int) -> bool:
    """Return whether an argument behind the `>>>` at `close` is a list in braces without a type."""
    arguments = code.split(close + 4, code.partner.get(close + 3, close))
    return any(code.text(start) == "{" for start, _ in arguments)


def knows_parameters(code: Code, functions: Sequence[Function], launch: int) -> bool:
    """Return whether the kernel before the `<<<` at `launch` has template arguments, or is one plain function."""
    name = kernel_name(code, launch - 1, launch)
    same = [function for function in functions if function.name == name]
    plain = len(same) == 1 and "template" not in same[0].qualifiers
    return code.text(launch - 1) == ">" or plain
