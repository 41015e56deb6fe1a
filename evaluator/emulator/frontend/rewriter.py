"""Rewriting of CUDA C++ to C++ by token edits: launches, shared memory, device names.

Edits only insert text or blank out tokens. Every remaining token keeps its line, so compiler messages need no
translation. Macros and functions in `include/` cover all other CUDA extensions.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

from evaluator.cuda_source.edits import Edits
from evaluator.cuda_source.lexer import Code, Function, Kind, macros, tokens
from evaluator.emulator.frontend.callgraph import CallGraph
from evaluator.emulator.frontend.launches import Launches
from evaluator.emulator.frontend.shared_memory import SharedDeclarations

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
        self._code = Code(self._tokens)
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

    def __init__(self, code: Code, edits: Edits, functions: Sequence[Function]) -> None:
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

    def __init__(self, code: Code, edits: Edits) -> None:
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
