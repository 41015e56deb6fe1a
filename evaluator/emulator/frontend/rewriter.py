"""Rewriting of CUDA C++ to C++ by token edits: launches, shared memory, device names.

Edits only insert text or blank out tokens. Every remaining token keeps its line, so compiler messages need no
translation. Macros and functions in `include/` cover all other CUDA extensions.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

from evaluator.cuda_source.edits import Edits
from evaluator.cuda_source.launch_syntax import config_end, kernel_name, kernel_start, without_parentheses
from evaluator.cuda_source.lexer import CodeTokens, Function, Kind, Token, flat, macros, tokens
from evaluator.emulator.frontend.callgraph import CallGraph, check_bounds
from evaluator.emulator.frontend.shared_memory import SharedDeclarations


class Launches:
    """Launches of one text. `macro` holds the parameter names if the text is a macro body, else None."""

    def __init__(
        self,
        code: CodeTokens,
        edits: Edits,
        graph: CallGraph,
        functions: Sequence[Function],
        macro: frozenset[str] | None,
    ) -> None:
        """Use `graph` to decide which kernels wait, and `functions` to look up kernel parameters."""
        self._code = code
        self._edits = edits
        self._graph = graph
        self._functions = functions
        self._macro = macro

    def edit(self) -> None:
        """Rewrite all launches, and insert the kernels' launch bound checks."""
        check_bounds(self._code, self._edits, self._functions, self._graph.macro_bounds)
        for index in range(len(self._code)):
            if self._code.text(index) == "<<<":
                self._launch(index)
            elif self._code.text(index) == "cudaLaunchKernel" and self._code.text(index + 1) == "(":
                self._launch_function(index)
            elif not self._is_launched(index):
                self._cast(index)

    def _is_launched(self, index: int) -> bool:
        return self._code.text(index - 1) == "(" and self._code.text(index - 2) == "cudaLaunchKernel"

    def _launch(self, index: int) -> None:
        """Rewrite `K<<<config>>>(arguments)`, with `<<<` at `index`, as a call of `emu::launch`."""
        code = self._code
        start = kernel_start(code, index)
        close = config_end(code, index)
        if start is None or close is None or (opener := close + 3) not in code.partner:
            return
        kernel = code.tokens[start:index]
        bare = code.tokens[slice(*without_parentheses(code, start, index))]
        name = kernel_name(code, start, index)
        head = f"emu::launch<{self._waits(name)}>({self._quoted(bare)}, {self._line(index)}, emu::Config("
        self._edits.blank(start, index + 1)
        self._edits.insert_before(start, head)
        self._edits.blank(close, close + 4)
        separator = self._arguments(name, flat(kernel), opener + 1, code.partner[opener])
        self._edits.insert_after(close, f"), [&](auto&&... emu_a) {{ {flat(kernel)}(emu_a...); }}{separator}")

    def _quoted(self, kernel: Sequence[Token]) -> str:
        """Return the kernel expression as a string literal; macro parameters are stringized with `#`."""
        if self._macro is None or not any(token.text in self._macro for token in kernel):
            return '"' + flat(kernel).replace("\\", "\\\\").replace('"', '\\"') + '"'
        return " ".join(f"#{token.text}" if token.text in self._macro else f'"{token.text}"' for token in kernel)

    def _line(self, index: int) -> str:
        return str(self._code.tokens[index].line) if self._macro is None else "__LINE__"

    def _arguments(self, kernel: str | None, expression: str, start: int, end: int) -> str:
        """Return the separator between kernel and arguments. Type null pointers and lists in braces."""
        arguments = self._code.split(start, end)
        pointers = self._pointer_parameters(kernel)
        for number, (begin, stop) in enumerate(arguments):
            text = self._code.text(begin)
            if stop - begin == 1 and (text == "NULL" or (text == "0" and number in pointers)):
                self._edits.replace(self._code.tokens[begin], "nullptr")
            if text == "{":
                self._edits.insert_before(begin, f"emu::Parameter<{number}, decltype(&{expression})>")
        if self._code.text(start) == "__VA_ARGS__":
            return " __VA_OPT__(,) "
        return ", " if arguments else ""

    def _pointer_parameters(self, kernel: str | None) -> set[int]:
        """Return the positions of pointer parameters of a kernel in this text. In macros, `0` stays unchanged."""
        code = self._code
        for function in self._functions:
            if function.name == kernel:
                params = code.split(function.parameters[0] + 1, function.parameters[1])
                return {number for number, (a, b) in enumerate(params) if any(code.text(i) == "*" for i in range(a, b))}
        return set()

    def _launch_function(self, index: int) -> None:
        """Rewrite `cudaLaunchKernel(kernel, …)` as a call with the kernel's name and parameter types.

        A cast to `void*` is removed to preserve the parameter types.
        """
        code = self._code
        end = next((end for _, end in code.split(index + 2, code.partner.get(index + 1, index + 2))), None)
        if end is None:
            return
        start = index + 2
        after = _after_cast(code, start)
        if after is not None:
            self._edits.blank(start, after)
            start = after
        bare_start, bare_end = without_parentheses(code, start, end)
        bare = code.tokens[bare_start + (code.text(bare_start) == "&") : bare_end]
        name = kernel_name(code, bare_start, bare_end)
        head = f"emu::launch_function<{self._waits(name)}>({self._quoted(bare)}, {self._line(index)}, "
        self._edits.blank(index, index + 2)
        self._edits.insert_before(index, head)

    def _cast(self, index: int) -> None:
        """Wrap `(void*)kernel` in `emu::kernel_pointer`, which records the parameter types for a later launch."""
        code = self._code
        start = _after_cast(code, index)
        if start is None:
            return
        inside = code.text(start) == "("
        first = start + inside
        name_index = first + (code.text(first) == "&")
        name = code.text(name_index)
        end = name_index + 1
        if code.text(end) == "<":
            end = code.after_template(end) or end
        if not self._graph.is_kernel(name) or code.text(end) == "(" or (inside and code.text(end) != ")"):
            return
        quoted = self._quoted(code.tokens[name_index:end])
        self._edits.insert_before(first, f"emu::kernel_pointer<{self._waits(name)}>({quoted}, ")
        self._edits.insert_after(end - 1, ")")

    def _waits(self, kernel: str | None) -> str:
        return "true" if kernel is None or self._graph.waits(kernel) else "false"


_VOID_POINTERS = (["void", "*"], ["const", "void", "*"], ["void", "const", "*"])


def _after_cast(code: CodeTokens, index: int) -> int | None:
    """Return the index of the operand of a cast to `void*` at `index`; None without such a cast."""
    if code.text(index) in ("reinterpret_cast", "static_cast"):
        after = code.after_template(index + 1)
        return after if after is not None and _is_void_pointer(code, index + 2, after - 1) else None
    close = code.partner.get(index, -1)
    return close + 1 if code.text(index) == "(" and _is_void_pointer(code, index + 1, close) else None


def _is_void_pointer(code: CodeTokens, start: int, end: int) -> bool:
    return [code.text(i) for i in range(start, end)] in _VOID_POINTERS


_EMU = re.compile(r"\bemu\b(?![./])")
OWN_EMU = "emu_own"


def rewrite_unit(texts: Sequence[str]) -> list[str]:
    """Rewrite all CUDA sources of an extension together: a kernel may be launched from another source.

    >>> rewrite_unit(["__global__ void k(int n) {}", "void f() { k<<<1, 32>>>(7); }"])[1]
    'void f() { emu::launch<false>("k", 1, emu::Config(1, 32), [&](auto&&... emu_a) { k(emu_a...); }, 7); }'
    """
    graph = CallGraph(texts)
    sites = itertools.count()
    marks = marks_returns(texts)
    return [_Rewriter(text, graph, sites, marks=marks).result() for text in texts]


def marks_returns(texts: Iterable[str]) -> bool:
    """Return whether all kernel `return` statements in `texts` can be marked, which excludes returns inside macros.

    A marked return calls `emu::early_return()`. The call distinguishes a thread that left intentionally from a thread
    that ran past a barrier. If true, compile with -DWARPGRADE_EMU_MARKS_RETURNS.
    """
    return not any("return" in macro.body for text in texts for macro, _ in macros(tokens(text)))


def rewrite_host(text: str) -> str:
    """Rewrite ordinary C++: only device names change.

    >>> rewrite_host("TORCH_CHECK(x.is_cuda()); auto y = x.to(torch::kCUDA);")
    'TORCH_CHECK(x.is_cpu()); auto y = x.to(torch::kCPU);'
    """
    return _Rewriter(text, None, itertools.count()).result()


def without_own_emu(text: str) -> str:
    """Rename a submission's own `emu`, which is the emulator's namespace.

    >>> without_own_emu('namespace emu { const char* s = "emu"; }')
    'namespace emu_own { const char* s = "emu"; }'
    """
    if _EMU.search(text) is None:
        return text
    kinds = (Kind.WORD, Kind.DIRECTIVE)
    return "".join(_EMU.sub(OWN_EMU, token.text) if token.kind in kinds else token.text for token in tokens(text))


class _Rewriter:
    """Edits of one text. Without `graph`, only device names are edited; `macro` holds a macro body's parameters."""

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
        self._code = CodeTokens(self._tokens)
        self._edits = Edits(self._tokens, self._code)
        self._graph = graph
        self._sites = sites
        self._macro = macro
        self._marks = marks

    def result(self) -> str:
        """Return the rewritten text."""
        code, edits = self._code, self._edits
        self._directives()
        _DeviceNames(code, edits).edit()
        if self._graph is not None:
            functions = code.functions()
            Launches(code, edits, self._graph, functions, self._macro).edit()
            SharedDeclarations(code, edits, self._sites, functions, in_macro=self._macro is not None).edit()
            if self._marks:
                _Returns(code, edits, functions).edit()
        return edits.result()

    def _directives(self) -> None:
        """Rewrite macro bodies."""
        for macro, token in macros(self._tokens):
            body = _Rewriter(macro.body, self._graph, self._sites, macro=macro.parameters).result()
            self._edits.replace(token, macro.header + body)


class _Returns:
    """Return statements of kernels, excluding nested functions and lambdas."""

    def __init__(self, code: CodeTokens, edits: Edits, functions: Sequence[Function]) -> None:
        self._code = code
        self._edits = edits
        self._bodies = {function.body[0] for function in functions}

    def edit(self) -> None:
        """Mark all return statements."""
        code = self._code
        for kernel in (function for function in code.outermost() if "__global__" in function.qualifiers):
            index = kernel.body[0] + 1
            while index < kernel.body[1]:
                if code.text(index) == "{" and self._is_inner_body(index, kernel):
                    index = code.after(index)
                    continue
                if code.text(index) == "return":
                    self._mark_return(index)
                index += 1

    def _is_inner_body(self, index: int, kernel: Function) -> bool:
        return self._code.lambda_before(index) or (index in self._bodies and index != kernel.body[0])

    def _mark_return(self, index: int) -> None:
        """Append the call of `emu::early_return()` to `return;` and `return f();`."""
        end = index + 1
        while self._code.text(end) not in (";", "", ")", "]", "}"):
            end = self._code.after(end)
        if self._code.text(end) == ";":
            self._edits.insert_before(end, " emu::early_return()" if end == index + 1 else ", emu::early_return()")


_TEXT_OF_DEVICE = '.replace(0, 3, "cuda:0").substr()'
"""`substr` makes a value of the reference that `replace` returns."""


class _DeviceNames:
    """Device names such as `is_cuda()`: tensors of an emulated submission live in host memory."""

    def __init__(self, code: CodeTokens, edits: Edits) -> None:
        self._code = code
        self._edits = edits

    def edit(self) -> None:
        """Replace CUDA device names by their CPU counterparts, and CPU queries by queries that return false."""
        for index, token in enumerate(self._code.tokens):
            if token.kind in (Kind.WORD, Kind.STRING) and (text := self._replacement(index)) is not None:
                self._edits.replace(token, text)
            if token.text in ("kCUDA", "CUDA"):
                self._drop_index(index)
            elif self._is_text_of_device(index):
                self._edits.insert_after(self._code.partner[index + 1], _TEXT_OF_DEVICE)

    def _replacement(self, index: int) -> str | None:
        if self._code.kind(index) is Kind.STRING:
            return self._device_text(index)
        return self._member(index) or self._device_type(index)

    def _member(self, index: int) -> str | None:
        """Return the replacement of a tensor or device method."""
        text, after = self._code.text(index), [self._code.text(index + n) for n in (1, 2, 3, 4)]
        if text == "is_cuda" and self._code.text(index - 1) in (".", "->", "::"):
            return "is_cpu"
        if text == "type" and after == ["(", ")", ".", "is_cuda"]:
            return "device"  # Tensor.type() has no is_cpu().
        if self._code.text(index - 1) not in (".", "->") or after[0] != "(":
            return None
        match text:
            case "is_cpu":
                return "is_meta"
            case "cuda":
                return "cpu"
            # False converts to 0, the index of the only GPU; a CPU tensor would report -1.
            case "get_device":
                return "is_meta"
            case "index" if [self._code.text(index - n) for n in (2, 3, 4)] == [")", "(", "device"]:
                return "is_meta"
            case _:
                return None

    def _device_type(self, index: int) -> str | None:
        text, before, before_that = (self._code.text(index - n) for n in range(3))
        match text:
            case "kCUDA":
                return "kCPU"
            case "kCPU" if self._compared(index):
                return "kMeta"
            case "CPU" if (before, before_that) == ("::", "DeviceType") and self._compared(index):
                return "Meta"
            case "CUDA" if before == "::" and before_that in ("DeviceType", "Backend", "DispatchKey"):
                return "CPU"
            case "CUDA" if before == "," and self._code.text(index - 4) == "TORCH_LIBRARY_IMPL":
                return "CPU"
            case _:
                return None

    def _device_text(self, index: int) -> str | None:
        is_cuda = self._code.text(index) in ('"cuda"', '"cuda:0"')
        is_device = self._code.text(index - 1) == "(" and self._code.text(index - 2) in ("Device", "device")
        return '"cpu"' if is_cuda and is_device else None

    def _drop_index(self, index: int) -> None:
        """Drop the index of `Device(kCUDA, i)`: the CPU has none, and the only GPU has index 0."""
        start = index
        while self._code.text(start - 1) == "::":
            start -= 2
        opener = start - 1
        words = {self._code.text(opener - 1), self._code.text(opener - 2)}
        if self._code.text(opener) in ("(", "{") and self._code.text(index + 1) == "," and words & {"Device", "device"}:
            self._edits.blank(index + 1, self._code.partner.get(opener, index + 1))

    def _is_text_of_device(self, index: int) -> bool:
        """Return whether the token is `str` in `device().str()`."""
        before = [self._code.text(index - n) for n in (4, 3, 2, 1)]
        return (
            self._code.text(index) == "str" and before == ["device", "(", ")", "."] and index + 1 in self._code.partner
        )

    def _compared(self, index: int) -> bool:
        start = index
        while self._code.text(start - 1) == "::":
            start -= 2
        return self._code.text(index + 1) in ("==", "!=") or self._code.text(start - 1) in ("==", "!=", "case")
