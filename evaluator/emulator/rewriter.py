"""CUDA C++ to C++, token by token: launches, shared memory, and the names of the device.

Edits only insert text or blank tokens out, so every token that stays is on the line it was on, and the compiler's
messages need no translation. Everything else that CUDA adds to C++ is a macro or a function in `include/`.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from evaluator.emulator.features import CallGraph
from evaluator.emulator.lexer import Code, Function, Kind, Token, flat, parse_define, tokens

_MACRO_SITES = 1 << 20
"""Sites inside macros are numbered from here by the preprocessor: each expansion is a variable of its own."""
_ALIGNMENT = frozenset(("__align__", "alignas", "__attribute__"))
_DROPPED = frozenset(("__shared__", "static", "extern"))
_CV = frozenset(("const", "volatile", "__restrict__", "__restrict"))
_KEYWORDS = frozenset(("return", "else", "do"))
_HOST_NAMES = {"is_cuda": "is_cpu", "kCUDA": "kCPU", "is_cpu": "is_meta", "cuda": "cpu"}
_NO_INITIALIZER = 'static_assert(sizeof(int) == 0, "an initializer is not allowed for a __shared__ variable"); (void)'


def rewrite_unit(texts: Sequence[str]) -> list[str]:
    """Rewrite all CUDA sources of an extension; a kernel of one may be launched in another.

    >>> rewrite_unit(["__global__ void k(int n) {}", "void f() { k<<<1, 32>>>(7); }"])[1]
    'void f() { emu::launch<false>("k", 1, emu::Config(1, 32), [&](auto&&... emu_a) { k(emu_a...); }, 7); }'
    """
    graph = CallGraph(texts)
    sites = itertools.count()
    marks = marks_returns(texts)
    return [_Rewriter(text, graph, sites, marks=marks).result() for text in texts]


def marks_returns(texts: Iterable[str]) -> bool:
    """Say whether each `return` of a kernel in `texts` can be marked: not where one may come from a macro.

    A marked one becomes a call of `emu::early_return()`, which tells a thread that left on purpose from one that ran
    past a barrier of others. Compile with -DWARPGRADE_EMU_MARKS_RETURNS where this is true.
    """
    directives = (token.text for text in texts for token in tokens(text) if token.kind is Kind.DIRECTIVE)
    return not any("return" in macro.body for text in directives if (macro := parse_define(text)) is not None)


def rewrite_host(text: str) -> str:
    """Rewrite C++ that no CUDA compiler sees: only the names of the device change.

    >>> rewrite_host("TORCH_CHECK(x.is_cuda()); auto y = x.to(torch::kCUDA);")
    'TORCH_CHECK(x.is_cpu()); auto y = x.to(torch::kCPU);'
    """
    return _Rewriter(text, None, itertools.count()).result()


class _Shared(NamedTuple):
    """A `__shared__` declaration, as indices into the code: `start` to its `;` at `end`."""

    start: int
    end: int
    declarators: int
    dynamic: bool


class _Declarator(NamedTuple):
    """One variable of a declaration: `start`, its name, where its type ends and an initializer may begin, its end."""

    start: int
    name: int
    suffix_end: int
    end: int


class _Rewriter:
    """The edits of one text. With no graph, only device names are edited."""

    def __init__(
        self,
        text: str,
        graph: CallGraph | None,
        sites: Iterator[int],
        *,
        macro: frozenset[str] | None = None,
        marks: bool = False,
    ) -> None:
        self._tokens = tokens(text, is_body=macro is not None)
        self._code = Code(self._tokens)
        self._graph = graph
        self._sites = sites
        self._macro = macro
        self._marks = marks
        self._replaced: dict[int, str] = {}
        self._before: dict[int, str] = {}
        self._after: dict[int, str] = {}
        self._functions = self._code.functions() if graph is not None else []
        self._bodies = {function.body[0] for function in self._functions}

    def result(self) -> str:
        """Give the rewritten text."""
        self._directives()
        _DeviceNames(self._code, self._replaced).edit()
        if self._graph is not None:
            for index in range(len(self._code)):
                if self._code.text(index) == "<<<":
                    self._launch(index, self._graph.waits)
                elif self._code.text(index) == "cudaLaunchKernel":
                    self._launch_function(index)
            self._shared_declarations()
            self._returns()
        pieces = (
            self._before.get(token.place, "")
            + self._replaced.get(token.place, token.text)
            + self._after.get(token.place, "")
            for token in self._tokens
        )
        return "".join(pieces)

    def _directives(self) -> None:
        """Rewrite the bodies of macros."""
        for token in self._tokens:
            if token.kind is Kind.DIRECTIVE and (macro := parse_define(token.text)) is not None:
                body = _Rewriter(macro.body, self._graph, self._sites, macro=macro.parameters).result()
                self._replaced[token.place] = macro.header + body

    def _blank(self, start: int, end: int) -> None:
        """Take tokens of the code out; the space between them stays, for the sake of its newlines."""
        for token in self._code.tokens[start:end]:
            self._replaced[token.place] = "\n" * token.text.count("\n")

    def _insert_before(self, index: int, text: str) -> None:
        place = self._code.tokens[index].place
        self._before[place] = self._before.get(place, "") + text

    def _insert_after(self, index: int, text: str) -> None:
        place = self._code.tokens[index].place
        self._after[place] = text + self._after.get(place, "")

    # Launches

    def _launch(self, index: int, waits: Callable[[str], bool]) -> None:
        """Turn `K<<<config>>>(arguments)`, whose `<<<` is at `index`, into a call of `emu::launch`."""
        code = self._code
        start = kernel_start(code, index)
        close = config_end(code, index)
        if start is None or close is None or (opener := close + 3) not in code.partner:
            return
        kernel = code.tokens[start:index]
        bare = code.tokens[slice(*_without_parentheses(code, start, index))]
        name = kernel_name(code, start, index)
        sync = "true" if name is None or waits(name) else "false"
        self._blank(start, index + 1)
        self._insert_before(start, f"emu::launch<{sync}>({self._quoted(bare)}, {self._line(index)}, emu::Config(")
        self._blank(close, close + 4)
        separator = self._arguments(name, opener + 1, code.partner[opener])
        self._insert_after(close, f"), [&](auto&&... emu_a) {{ {flat(kernel)}(emu_a...); }}{separator}")

    def _quoted(self, kernel: Sequence[Token]) -> str:
        """Write the kernel as a string literal; a macro's parameters in it become what the macro is given."""
        if self._macro is None or not any(token.text in self._macro for token in kernel):
            return '"' + flat(kernel).replace("\\", "\\\\").replace('"', '\\"') + '"'
        return " ".join(f"#{token.text}" if token.text in self._macro else f'"{token.text}"' for token in kernel)

    def _line(self, index: int) -> str:
        return str(self._code.tokens[index].line) if self._macro is None else "__LINE__"

    def _arguments(self, kernel: str | None, start: int, end: int) -> str:
        """Give what separates the kernel from its arguments, and give null pointers among them a type."""
        parts = self._code.split(start, end)
        pointers = self._pointer_parameters(kernel)
        for number, (begin, stop) in enumerate(parts):
            text = self._code.text(begin)
            if stop - begin == 1 and (text == "NULL" or (text == "0" and number in pointers)):
                self._replaced[self._code.tokens[begin].place] = "nullptr"
        if self._code.text(start) == "__VA_ARGS__":
            return " __VA_OPT__(,) "
        return ", " if parts else ""

    def _pointer_parameters(self, kernel: str | None) -> set[int]:
        """Say which parameters of a kernel of this text are pointers; in a macro, a `0` stays what it is."""
        code = self._code
        for function in self._functions:
            if function.name == kernel:
                parts = code.split(function.parameters[0] + 1, function.parameters[1])
                return {number for number, (a, b) in enumerate(parts) if any(code.text(i) == "*" for i in range(a, b))}
        return set()

    def _launch_function(self, index: int) -> None:
        """Take the cast to `void*` off the kernel given to `cudaLaunchKernel`, so that its parameters stay known."""
        code = self._code
        for cast in (["(", "void", "*", ")"], ["(", "const", "void", "*", ")"]):
            if [code.text(index + 2 + n) for n in range(len(cast))] == cast:
                self._blank(index + 2, index + 2 + len(cast))
        if code.text(index + 2) in ("reinterpret_cast", "static_cast"):
            after = code.after_template(index + 3)
            if after is not None:
                self._blank(index + 2, after)

    # Returns

    def _returns(self) -> None:
        """Mark each `return` of a kernel itself: not those of functions and lambdas inside of it."""
        if not self._marks:
            return
        code = self._code
        for kernel in (function for function in code.outermost() if "__global__" in function.qualifiers):
            index = kernel.body[0] + 1
            while index < kernel.body[1]:
                if code.text(index) == "{" and self._is_inner_body(index, kernel):
                    index = code.partner.get(index, index)
                elif code.text(index) == "return":
                    self._mark_return(index)
                index += 1

    def _is_inner_body(self, index: int, kernel: Function) -> bool:
        return self._code.lambda_before(index) or (index in self._bodies and index != kernel.body[0])

    def _mark_return(self, index: int) -> None:
        """Make `return;` and `return f();` tell, after anything else that they do."""
        end = index + 1
        while self._code.text(end) not in (";", ""):
            end = self._code.partner.get(end, end) + 1
        if self._code.text(end) == ";":
            self._insert_before(end, " emu::early_return()" if end == index + 1 else ", emu::early_return()")

    # Shared memory

    def _shared_declarations(self) -> None:
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
        if self._macro is None and not code.in_function(shared.start):
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
                self._blank(declarator.suffix_end, declarator.suffix_end + 1)
        self._insert_after(declarator.suffix_end - 1, f" = {storage}")
        self._insert_before(declarator.name, "(&")
        self._insert_after(declarator.name, ")")

    def _storage(self, type_name: str, declarator: _Declarator, shared: _Shared) -> str:
        """Write the expression for a variable's memory. A stricter alignment than its type's needs a struct."""
        site = str(next(self._sites)) if self._macro is None else f"{_MACRO_SITES} + __COUNTER__"
        alignment = "".join(f" alignas({text})" for text in self._alignments(shared))
        if not alignment:
            return f"emu::shared<{self._without_name(type_name, declarator)}>({site})"
        name = self._code.text(declarator.name)
        whole = flat(self._code.tokens[declarator.start : declarator.suffix_end])
        self._insert_before(shared.start, f"struct{alignment} emu_aligned_{name} {{ {type_name} {whole}; }}; ")
        return f"emu::shared<emu_aligned_{name}>({site}).{name}"

    def _without_name(self, type_name: str, declarator: _Declarator) -> str:
        code = self._code
        run = code.tokens[declarator.start : declarator.name] + code.tokens[declarator.name + 1 : declarator.suffix_end]
        return flat(tokens(f"{type_name} ")[:-1] + run)

    def _dynamic(self, type_name: str, declarator: _Declarator, start: int) -> None:
        """Turn `extern __shared__ T s[];` into a pointer to the block's one dynamic array.

        The nested `extern` is never defined. It lets g++ say what nvcc says of one name with two types.
        """
        code = self._code
        name = declarator.name
        whole = flat(code.tokens[declarator.start : declarator.suffix_end])
        first = code.partner.get(name + 1, name) if code.text(name + 1) == "[" else name
        element = flat(
            tokens(type_name) + code.tokens[declarator.start : name] + code.tokens[first + 1 : declarator.suffix_end]
        )
        self._insert_before(start, f"{{ extern {type_name} {whole}; }} ")
        if first == name:
            self._insert_before(name, "(&")
            self._insert_after(declarator.suffix_end - 1, f") = *emu::dynamic_shared<{element}>()")
            return
        self._insert_before(name, "(*")
        self._insert_after(name, ")")
        self._blank(name + 1, first + 1)
        self._insert_after(declarator.suffix_end - 1, f" = emu::dynamic_shared<{element}>()")

    def _alignments(self, shared: _Shared) -> list[str]:
        code = self._code
        return [
            flat(code.tokens[index + 2 : code.partner[index + 1]])
            for index in range(shared.start, shared.end)
            if code.text(index) in ("__align__", "alignas") and index + 1 in code.partner
        ]

    def _type_tokens(self, shared: _Shared) -> list[Token]:
        code = self._code
        kept, index = [], shared.start
        while index < shared.declarators:
            if code.text(index) in _ALIGNMENT:
                index = code.partner.get(index + 1, index)
            elif code.text(index) not in _DROPPED:
                kept.append(code.tokens[index])
            index += 1
        return kept

    def _drop_specifiers(self, shared: _Shared) -> None:
        kept = {token.place for token in self._type_tokens(shared)}
        for token in self._code.tokens[shared.start : shared.declarators]:
            if token.place not in kept:
                self._replaced[token.place] = "\n" * token.text.count("\n")

    def _named_record(self, shared: _Shared) -> str | None:
        """Close a `struct {…}` or `union {…}` that the declaration defines, under a name; None without one."""
        code = self._code
        brace = next((i for i in range(shared.start, shared.declarators) if code.text(i) == "{"), None)
        if brace is None or brace not in code.partner:
            return None
        name = code.text(brace - 1)
        if name in ("struct", "union", "class"):
            name = f"emu_record_{code.tokens[brace].place}"
            self._insert_before(brace, f" {name} ")
        self._insert_after(code.partner[brace], f"; {name} ")
        return name

    def _file_scope(self, shared: _Shared) -> None:
        """Move a declaration outside of all functions into each function of the device that uses its names."""
        code = self._code
        text = flat(code.tokens[shared.start : shared.end])
        variables = [code.text(item.name) for item in declarators(code, shared.declarators, shared.end)]
        sites = itertools.count(next(self._sites))
        for _ in variables[1:]:
            next(self._sites)
        first = next(sites)
        self._blank(shared.start, shared.end + 1)
        for function in self._functions:
            if function.body[0] > shared.end and self._uses(function, variables):
                inner = _Rewriter(f"void f() {{ {text}; }}", self._graph, itertools.count(first)).result()
                self._insert_after(function.body[0], inner[len("void f() {") : -1])

    def _uses(self, function: Function, variables: Sequence[str]) -> bool:
        code = self._code
        own = set(code.words(*function.parameters))
        return (
            bool(function.qualifiers & {"__global__", "__device__"})
            and not own & set(variables)
            and bool(set(variables) & set(code.words(*function.body)))
        )


class _DeviceNames:
    """`is_cuda()` and its like: the tensors of an emulated submission are in the host's memory."""

    def __init__(self, code: Code, replaced: dict[int, str]) -> None:
        self._code = code
        self._replaced = replaced

    def edit(self) -> None:
        """Replace every name of the CUDA device by the CPU's, and a question for the CPU by one that is denied."""
        for index, token in enumerate(self._code.tokens):
            if token.kind in (Kind.WORD, Kind.STRING) and (text := self._replacement(index)) is not None:
                self._replaced[token.place] = text

    def _replacement(self, index: int) -> str | None:
        text, before, before_that = (self._code.text(index - n) for n in range(3))
        match text:
            case "is_cuda" | "kCUDA":
                return _HOST_NAMES[text]
            case "is_cpu" | "cuda" if before in (".", "->") and self._code.text(index + 1) == "(":
                return _HOST_NAMES[text]
            case "kCPU" if self._compared(index):
                return "kMeta"
            case "CPU" if (before, before_that) == ("::", "DeviceType") and self._compared(index):
                return "Meta"
            case "CUDA" if before == "::" and before_that in ("DeviceType", "Backend", "DispatchKey"):
                return "CPU"
            case "CUDA" if before == "," and self._code.text(index - 4) == "TORCH_LIBRARY_IMPL":
                return "CPU"
            case "type" if [self._code.text(index + n) for n in (1, 2, 3, 4)] == ["(", ")", ".", "is_cuda"]:
                return "device"  # Tensor.type() has no is_cpu().
            case '"cuda"' | '"cuda:0"' if before == "(" and before_that in ("Device", "device"):
                return '"cpu"'
            case _:
                return None

    def _compared(self, index: int) -> bool:
        start = index
        while self._code.text(start - 1) == "::":
            start -= 2
        return self._code.text(index + 1) in ("==", "!=") or self._code.text(start - 1) in ("==", "!=")


def kernel_start(code: Code, launch: int) -> int | None:
    """Give the index where the expression before the `<<<` at `launch` begins; None where there is none."""
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
    """Tell `name::` from the `::` of a global name after a keyword."""
    return code.text(index) == ">" or (code.kind(index) is Kind.WORD and code.text(index) not in _KEYWORDS)


def _operand_start(code: Code, index: int) -> int | None:
    """Give where the operand ends that ends at `index`: a name, with template arguments, calls and subscripts."""
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
        called = code.kind(opener - 1) is Kind.WORD and code.text(opener - 1) not in _KEYWORDS
        statement = code.text(opener - 1) in ("if", "while", "for", "switch", "constexpr")
        if text == ")" and (not called or statement):
            return opener
        index = opener - 1


def config_end(code: Code, launch: int) -> int | None:
    """Give the index of the first `>` of the `>>>` that belongs to the `<<<` at `launch`."""
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
    """Give the plain name of the kernel of a launch; None where it is computed."""
    start, end = _without_parentheses(code, start, end)
    if code.text(end - 1) == ">":
        before = code.before_template(end - 1)
        end = before + 1 if before is not None else end
    return code.text(end - 1) if code.kind(end - 1) is Kind.WORD else None


def _without_parentheses(code: Code, start: int, end: int) -> tuple[int, int]:
    while code.text(start) == "(" and code.partner.get(start) == end - 1:
        start, end = start + 1, end - 1
    return start, end


def shared_declaration(code: Code, index: int, end: int) -> _Shared | None:
    """Take apart the declaration up to `end` that the `__shared__` at `index` is a word of; None without a name."""
    start = _declaration_start(code, index)
    first = _first_declarator(code, start, end)
    if first is None:
        return None
    return _Shared(start, end, first, dynamic="extern" in code.words(start, first))


def _declaration_end(code: Code, index: int) -> int:
    while index < len(code) and code.text(index) not in (";", ")", "}"):
        index = code.partner.get(index, index) + 1
    return index


def _declaration_start(code: Code, index: int) -> int:
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


def _first_declarator(code: Code, start: int, end: int) -> int | None:  # noqa: C901 -- one branch for each specifier
    """Give the index after the specifiers: of a `*`, a `(`, or the first variable's name."""
    index, has_type = start, False
    while index < end:
        text, after = code.text(index), code.text(index + 1)
        if text in _ALIGNMENT or text in ("decltype", "typeof", "__typeof__"):
            has_type = has_type or text not in _ALIGNMENT
            index = code.partner.get(index + 1, index) + 1
        elif text in ("*", "&", "("):
            return index if has_type else None
        elif text in _DROPPED or text in _CV or text in ("typename", "struct", "union", "class", "enum", "::"):
            index += 1
            if code.text(index) == "{":
                has_type = True
                index = code.partner.get(index, index) + 1
        elif code.kind(index) is not Kind.WORD:
            return None
        elif after == "<" and (past := code.after_template(index + 1)) is not None:
            has_type, index = True, past
        elif after == "{" and code.text(index - 1) in ("struct", "union", "class"):
            has_type, index = True, code.partner.get(index + 1, index) + 1
        elif after == "::":
            index += 2
        elif has_type and (index + 1 >= end or after in ("[", ",", "=", "{", "(")):
            return index
        else:
            has_type, index = True, index + 1
    return None


def declarators(code: Code, start: int, end: int) -> list[_Declarator]:
    """Take the variables of a declaration apart."""
    found = []
    for first, stop in code.split(start, end):
        names = (i for i in range(first, stop) if code.kind(i) is Kind.WORD and code.text(i) not in _CV)
        name = next(names, None)
        if name is not None:
            suffix = name + 1
            while code.text(suffix) in ("[", ")") and suffix < stop:
                suffix = code.partner.get(suffix, suffix) + 1 if code.text(suffix) == "[" else suffix + 1
            found.append(_Declarator(first, name, suffix, stop))
    return found
