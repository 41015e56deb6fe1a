"""Rewriting of kernel launches into calls of `emu::launch`."""

from collections.abc import Sequence

from evaluator.cuda_source.edits import Edits
from evaluator.cuda_source.launch_syntax import config_end, kernel_name, kernel_start, without_parentheses
from evaluator.cuda_source.lexer import Code, Function, Token, flat
from evaluator.emulator.frontend.callgraph import CallGraph
from evaluator.emulator.frontend.launch_bounds import check_bounds


class Launches:
    """Launches of one text. `macro` holds the parameter names if the text is a macro body, else None."""

    def __init__(
        self, code: Code, edits: Edits, graph: CallGraph, functions: Sequence[Function], macro: frozenset[str] | None
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


def _after_cast(code: Code, index: int) -> int | None:
    """Return the index of the operand of a cast to `void*` at `index`; None without such a cast."""
    if code.text(index) in ("reinterpret_cast", "static_cast"):
        after = code.after_template(index + 1)
        return after if after is not None and _is_void_pointer(code, index + 2, after - 1) else None
    close = code.partner.get(index, -1)
    return close + 1 if code.text(index) == "(" and _is_void_pointer(code, index + 1, close) else None


def _is_void_pointer(code: Code, start: int, end: int) -> bool:
    return [code.text(i) for i in range(start, end)] in _VOID_POINTERS
