"""Split of one .cu file into a device half for nvcc without PyTorch's headers, and a host half for g++.

The host half keeps its C++ meaning: kernels become declarations of nvcc's host stubs, and launches become the code that
nvcc generates for a launch. Both halves preserve line numbers, so messages need no translation.
"""

import bisect
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from evaluator.cuda_source.declarations import Item, NotSplittable, ParsedSource, Target, take_apart
from evaluator.cuda_source.edits import Edits
from evaluator.cuda_source.launch_syntax import config_end, kernel_start
from evaluator.cuda_source.lexer import CodeTokens, Kind, flat, macros, tokens


class Halves(NamedTuple):
    """Two halves, the names of all kernels, and the names of kernel templates."""

    host: str
    device: str
    kernels: frozenset[str]
    templates: frozenset[str]


_NAMESPACE = "warpgrade_unnamed"
_INCLUDE = r'#[ \t]*include[ \t]*[<"]'
_PYTORCH = re.compile(_INCLUDE + r"(?:(?:torch|ATen|c10|caffe2|THC|pybind11)/|Python\.h)")
_PRECOMPILED = re.compile(_INCLUDE + r'(?:torch/(?:extension|torch|all|types)\.h|ATen/ATen\.h)[>"]')
"""Headers covered by the precompiled header. torch::nn is missing from the precompiled header and fails to compile."""
_DEVICE_ONLY = re.compile(
    _INCLUDE + r"(?:cub/|thrust/|cuda/|cute/|cutlass/|cooperative_groups|mma\.h|cuda_pipeline|curand_\w+\.h"
    r"|device_functions\.h|sm_\d+_|cuda_awbarrier|texture_|surface_)"
)
_DEVICE_NAMESPACES = frozenset(("cub", "thrust", "cuda", "cute", "cutlass", "cooperative_groups", "nvcuda", "wmma"))
_DEVICE_LIBRARIES = frozenset(("cub", "thrust", "cute", "cutlass"))
"""Namespaces whose headers the host half lacks, and which no namespace of PyTorch has the name of."""
_PYTORCH_NAMESPACES = frozenset(("torch", "at", "c10", "caffe2", "pybind11", "py"))
_KERNEL_WORDS = frozenset(("__global__", "static", "inline", "__forceinline__", "__noinline__"))
_KERNEL_CALLS = frozenset(("__launch_bounds__", "__cluster_dims__", "__maxnreg__", "__block_size__"))
_LIGHT_HEADERS = (
    (re.compile(r"\b(?:Half|kHalf)\b"), "c10/util/Half.h"),
    (re.compile(r"\bBFloat16\b"), "c10/util/BFloat16.h"),
    (re.compile(r"\bc10::complex\b"), "c10/util/complex.h"),
    (re.compile(r"\bFloat8_e4m3fn\b"), "c10/util/Float8_e4m3fn.h"),
    (re.compile(r"\bFloat8_e5m2\b"), "c10/util/Float8_e5m2.h"),
    (re.compile(r"\bopmath_type\b"), "ATen/OpMathType.h"),
    (re.compile(r"\bacc_type\b"), "ATen/AccumulateType.h"),
    (re.compile(r"\b(?:Generic)?(?:Packed)?TensorAccessor\w*"), "ATen/core/TensorAccessor.h"),
)


def split(text: str) -> Halves:
    """Split a .cu file. Raises NotSplittable."""
    if "RestrictPtrTraits" in text:
        raise NotSplittable("only nvcc sees RestrictPtrTraits")
    source = take_apart(text)
    kernels = [item for item in source.items if item.side is Target.KERNEL]
    templates = frozenset(item.name for item in kernels if source.code.text(item.start) == "template")
    names = frozenset(item.name for item in kernels)
    return Halves(_HostHalf(source).text(), _DeviceHalf(source).text(), names, templates)


def without_precompiled(text: str) -> str:
    """Remove the includes covered by the precompiled header from a C++ source."""
    return "".join(
        "\n" * token.text.count("\n") if token.kind is Kind.DIRECTIVE and _PRECOMPILED.match(token.text) else token.text
        for token in tokens(text)
    )


def device_headers(device_text: str) -> list[str]:
    """Return the PyTorch headers for a device half: a few light headers."""
    return [header for pattern, header in _LIGHT_HEADERS if pattern.search(device_text)]


class _Half:
    """Common parts of both halves: token edits, and the selection of needed declarations."""

    def __init__(self, source: ParsedSource) -> None:
        self._source = source
        self._code = source.code
        self._edits = Edits(source.tokens, source.code)

    def _name_scopes(self) -> None:
        """Name anonymous namespaces, so the halves can link to each other."""
        for scope in self._source.scopes:
            if scope.name_at is not None:
                self._edits.insert_before(scope.name_at, f" {_NAMESPACE} ")
                if self._code.text(scope.name_at - 2) != "inline":
                    self._edits.insert_before(scope.name_at - 1, "inline ")

    def _drop_includes(self, pattern: re.Pattern[str]) -> None:
        for token in self._source.tokens:
            if token.kind is Kind.DIRECTIVE and pattern.match(token.text):
                self._edits.replace(token, "\n" * token.text.count("\n"))

    def _needed(self, roots: Iterable[Item], words_of: Callable[[Item], set[str]]) -> set[Item]:
        """Return the `EITHER` items referenced by `roots`, directly, transitively, or through macros."""
        items_of: dict[str, list[Item]] = {}
        for item in self._source.items:
            for name in item.names if item.side is Target.EITHER else ():
                items_of.setdefault(name, []).append(item)
        words = set().union(*(words_of(item) for item in roots))
        todo, chosen = list(words), set[Item]()
        while todo:
            word = todo.pop()
            more = set(re.findall(r"\w+", self._source.macros.get(word, "")))
            for item in items_of.pop(word, []):
                if item not in chosen:
                    chosen.add(item)
                    more |= words_of(item)
            todo += more - words
            words |= more
        return chosen

    def _mentions(self, item: Item, namespaces: frozenset[str]) -> bool:
        code = self._code
        first = code.text(item.start), code.text(item.start + 1)
        if first == ("using", "namespace") or first[0] == "namespace":
            return not namespaces.isdisjoint(self._words(item))
        return any(
            code.text(index) in namespaces and code.text(index + 1) == "::" for index in range(item.start, item.end)
        )

    def _words(self, item: Item) -> set[str]:
        return set(self._code.words(item.start, item.end))


class _DeviceHalf(_Half):
    """Device half: kernels, device functions, and referenced declarations."""

    def text(self) -> str:
        """Return the text of the half."""
        self._name_scopes()
        self._drop_includes(_PYTORCH)
        items = self._source.items
        roots = [item for item in items if item.side in (Target.KERNEL, Target.DEVICE, Target.DEVICE_VARIABLE)]
        needed = self._needed(roots, self._words)
        host_words = set().union(*(self._words(item) for item in items if item.side is Target.HOST))
        called = set().union(*(self._words(item) for item in roots))
        for item in items:
            if item.side is Target.KERNEL:
                self._make_visible(item)
            elif not self._keeps(item, needed, called):
                self._edits.blank(item.start, item.end)
            elif item.side is Target.DEVICE_VARIABLE and (names := item.names & host_words):
                name = _only(names)
                self._edits.insert_after(item.end - 1, f" {symbol_function(name)} {{ return &{name}; }}")
        return self._edits.result()

    def _keeps(self, item: Item, needed: set[Item], called: set[str]) -> bool:
        """Return whether to keep an item. A host function called by a kernel stays, so nvcc reports the error."""
        pytorch = self._mentions(item, _PYTORCH_NAMESPACES)
        match item.side:
            case Target.EITHER:
                return item in needed or not pytorch
            case Target.HOST:
                is_called = item.body is not None and not item.names.isdisjoint(called)
                return is_called and not pytorch and "<<<" not in self._texts(item)
            case _:
                return True

    def _texts(self, item: Item) -> set[str]:
        return {token.text for token in self._code.tokens[item.start : item.end]}

    def _make_visible(self, item: Item) -> None:
        """Make nvcc's host stub of a kernel visible to the host half."""
        for index in range(item.start, item.parameters if item.parameters is not None else item.end):
            if self._code.text(index) in ("static", "inline"):
                self._edits.blank(index, index + 1)


class _HostHalf(_Half):
    """Host half: host functions, kernel declarations, and referenced declarations."""

    def text(self) -> str:
        """Return the text of the half. Raises NotSplittable for lambdas and launches that need nvcc."""
        self._name_scopes()
        self._drop_includes(_DEVICE_ONLY)
        self._drop_includes(_PRECOMPILED)
        items = self._source.items
        roots = [item for item in items if item.side in (Target.KERNEL, Target.HOST)]
        needed = self._needed(roots, self._host_words)
        host_words = set().union(*(self._host_words(item) for item in [*roots, *needed]))
        for item in items:
            match item.side:
                case Target.KERNEL:
                    self._declare(item)
                case Target.DEVICE:
                    self._edits.blank(item.start, item.end)
                case Target.DEVICE_VARIABLE:
                    self._refer(item, item.names & host_words)
                case Target.EITHER:
                    self._either(item, needed)
                case Target.HOST:
                    if {"__device__", "__global__"} & self._words(item):
                        raise NotSplittable("a lambda for the device in a function of the host")
                    self._check_libraries(item)
        for item in items:
            if item.side in (Target.HOST, Target.EITHER):
                _rewrite_launches(self._code, self._edits, item.start, item.end)
        self._macros()
        return self._edits.result()

    def _host_words(self, item: Item) -> set[str]:
        end = item.body if item.side is Target.KERNEL and item.body is not None else item.end
        return set(self._code.words(item.start, end))

    def _declare(self, item: Item) -> None:
        """Reduce a kernel to its declaration."""
        code = self._code
        end = item.body if item.body is not None else item.end
        index = item.start
        while index < end:
            text = code.text(index)
            if text in _KERNEL_CALLS:
                stop = code.after_brackets(index)
                self._edits.blank(index, stop)
                index = stop
                continue
            in_header = item.parameters is None or index < item.parameters
            if text == "__grid_constant__" or (in_header and text in _KERNEL_WORDS):
                self._edits.blank(index, index + 1)
            index += 1
        if item.body is not None:
            self._edits.blank(item.body, item.end)
            self._edits.insert_before(item.body, ";")

    def _refer(self, item: Item, names: frozenset[str]) -> None:
        """Replace a device variable by a reference to its host shadow, if host code names the variable."""
        code = self._code
        if not names:
            self._edits.blank(item.start, item.end)
            return
        name = _only(names)
        at = next(index for index in range(item.start, item.end) if code.text(index) == name)
        stop = at + 1
        while code.text(stop) == "[":
            stop = code.after(stop)
        if code.text(stop) not in (";", "=", "{"):
            raise NotSplittable(f"the declaration of {name} cannot be read")
        dropped = frozenset(("__constant__", "__device__", "__managed__", "static", "extern", "const", "volatile"))
        kind = flat([token for token in code.tokens[item.start : at] if token.text not in dropped])
        extent = flat(code.tokens[at + 1 : stop])
        self._edits.blank(item.start, item.end)
        self._edits.insert_before(
            item.start,
            f"{symbol_function(name)}; using warpgrade_type_{name} = {kind} {extent};"
            f" static const warpgrade_type_{name}& {name} ="
            f" *static_cast<const warpgrade_type_{name}*>(warpgrade_symbol_{name}());",
        )

    def _either(self, item: Item, needed: set[Item]) -> None:
        """Keep a type or constant. An item with device code stays only if referenced, and loses its device code."""
        words = self._words(item)
        of_device = "__device__" in words or self._mentions(item, _DEVICE_NAMESPACES)
        if of_device and item not in needed:
            self._edits.blank(item.start, item.end)
        elif item.parameters is None and "__device__" in words:
            self._drop_device_methods(item)
        elif "__device__" not in words:
            self._check_libraries(item)

    def _check_libraries(self, item: Item) -> None:
        """Raise NotSplittable for code of the host that needs a library of kernels: the host half has no headers."""
        for index in range(item.start, item.end):
            name = self._code.text(index)
            if name in _DEVICE_LIBRARIES and self._code.text(index + 1) == "::" and self._code.text(index - 1) != "::":
                raise NotSplittable(f"{name} in code of the host")

    def _drop_device_methods(self, item: Item) -> None:
        """Remove the bodies of a class's device functions."""
        code = self._code
        functions = code.functions()
        first, end = (
            bisect.bisect_left(functions, index, key=lambda function: function.parameters[0])
            for index in (item.start, item.end)
        )
        for function in functions[first:end]:
            if "__device__" not in function.qualifiers:
                continue
            if "__host__" not in function.qualifiers:
                start = next(
                    (i for i in range(function.parameters[1] + 1, function.body[0]) if code.text(i) == ":"),
                    function.body[0],
                )
                self._edits.blank(start, function.body[1] + 1)
                self._edits.insert_before(start, ";")

    def _macros(self) -> None:
        """Rewrite the launches in macro bodies."""
        for macro, directive in macros(self._source.tokens):
            if "<<<" in macro.body:
                self._edits.replace(directive, macro.header + _launches_in(macro.body))


def _rewrite_launches(code: CodeTokens, edits: Edits, start: int, end: int) -> None:
    """Rewrite all launches in a token range. Raises NotSplittable."""
    for index in range(start, end):
        if code.text(index) == "<<<":
            _rewrite_launch(code, edits, index)


def _rewrite_launch(code: CodeTokens, edits: Edits, index: int) -> None:
    """Replace `kernel<<<config>>>(arguments)`, with `<<<` at `index`, by nvcc's generated code."""
    start, close = kernel_start(code, index), config_end(code, index)
    if start is None or close is None or (opener := close + 3) not in code.partner:
        raise NotSplittable("a launch that cannot be read")
    kernel = flat(code.tokens[start:index])
    edits.blank(start, index + 1)
    edits.insert_before(start, "(__cudaPushCallConfiguration(")
    edits.blank(close, close + 3)
    edits.insert_after(close, f") ? (void)0 : {kernel}")
    edits.insert_after(code.partner[opener], ")")


def _launches_in(body: str) -> str:
    """Rewrite the launches of a macro body."""
    body_tokens = tokens(body, is_body=True)
    code = CodeTokens(body_tokens)
    edits = Edits(body_tokens, code)
    _rewrite_launches(code, edits, 0, len(code))
    return edits.result()


def symbol_function(name: str) -> str:
    """Return the declaration of the device half's function for the address of a variable's host shadow."""
    return f'extern "C" __attribute__((visibility("hidden"))) const void* warpgrade_symbol_{name}()'


def _only(names: frozenset[str]) -> str:
    if len(names) != 1:
        raise NotSplittable("a declaration of several device variables")
    return next(iter(names))
