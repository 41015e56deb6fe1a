"""Prediction of a submission's builds from its text: calls of `load_inline` with constant arguments.

A wrong prediction wastes compiler time and has no other effect: a predicted build is used only if the running
submission requests exactly the same build.
"""

import ast
import contextlib
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from evaluator.lint.messages import MAX_BUILDS
from evaluator.lint.names import DottedNames
from evaluator.protocol.build_request import WITHOUT_EFFECT, load_inline, may_include
from evaluator.protocol.frames import BuildRequest, SourceFile

_MAX_CHARACTERS = 1 << 20
_MAX_STEPS = 20_000
"""Limit over all calls of a text: chains of names that double their value at each link grow exponentially."""
_INLINE = "torch.utils.cpp_extension.load_inline"

Value = str | bool | None | list[str] | dict[str, str]


class _NotForeseen(Exception):
    """The text does not determine the value."""


def predicted_builds(
    nodes: Sequence[ast.AST], names: DottedNames, headers: Sequence[SourceFile] = ()
) -> list[BuildRequest]:
    r"""List the build requests of the first `load_inline` calls. `nodes` is the complete tree of a module.

    The strings may include `headers`, those of a submission of several files.

    >>> tree = ast.parse("from torch.utils.cpp_extension import load_inline\nS = 'int f();'\nload_inline('e', [S])")
    >>> nodes = list(ast.walk(tree))
    >>> [(build.name, build.cpp_sources) for build in predicted_builds(nodes, DottedNames(nodes))]
    [('e', ['int f();'])]
    """
    reader = _Reader(_assigned_once(nodes))
    builds: list[BuildRequest] = []
    calls = [node for node in nodes if isinstance(node, ast.Call) and names.dotted(node.func) == _INLINE]
    for call in sorted(calls, key=lambda call: (call.lineno, call.col_offset)):
        # Arguments may have any type, and infinite recursion predicts no build.
        with contextlib.suppress(_NotForeseen, TypeError, RuntimeError, msgspec.ValidationError):
            request = msgspec.convert(msgspec.to_builtins(_request(call, reader)), BuildRequest)
            if headers and may_include(request, headers):
                request = replace(request, headers=list(headers))
            builds += [request] if request not in builds else []
        if len(builds) == MAX_BUILDS:
            break
    return builds


def _assigned_once(nodes: Sequence[ast.AST]) -> dict[str, ast.expr]:
    """Return the values of names bound exactly once in the text, by a plain assignment."""
    values: dict[str, ast.expr] = {}
    bound: dict[str, int] = {}
    for node in nodes:
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
                bound[name] = bound.get(name, 0) + 1
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                bound.update(dict.fromkeys(names, 2))
            case _:
                pass
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                values[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                values[name] = value
            case _:
                pass
    return {name: value for name, value in values.items() if bound[name] == 1}


def _request(call: ast.Call, reader: "_Reader") -> BuildRequest:
    arguments: list[Any] = [reader.value(argument) for argument in call.args]
    keywords: dict[str, Any] = {}
    for keyword in call.keywords:
        if keyword.arg is None:
            raise _NotForeseen
        if keyword.arg not in WITHOUT_EFFECT:  # The values of such arguments do not matter.
            keywords[keyword.arg] = reader.value(keyword.value)
    return load_inline(*arguments, **keywords)


class _Reader:
    """Evaluates constant expressions, within limits on steps and characters."""

    def __init__(self, expressions: dict[str, ast.expr]) -> None:
        """Resolve names through the `expressions`."""
        self._expressions = expressions
        self._steps = _MAX_STEPS
        self._characters = _MAX_CHARACTERS

    def value(self, node: ast.expr) -> Value:
        """Evaluate `node`. Raises _NotForeseen if the text does not determine the value, RecursionError for cycles."""
        self._steps -= 1
        if self._steps < 0:
            raise _NotForeseen
        match node:
            case ast.Constant(value=str() as text):
                return self._counted(text)
            case ast.Constant(value=bool() | None as value):
                return value
            case ast.Name(id=name) if name in self._expressions:
                return self.value(self._expressions[name])
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                return [self._word(element) for element in parts]
            case ast.Dict(keys=keys, values=values):
                return {self._word(key): self._word(value) for key, value in zip(keys, values, strict=True)}
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return _sum(self.value(left), self.value(right))
            case ast.JoinedStr(values=parts):
                return "".join(self._word(element) for element in parts)
            case ast.FormattedValue(value=filled_in, conversion=-1, format_spec=None):
                return self._word(filled_in)
            case _:
                raise _NotForeseen

    def _word(self, node: ast.expr | None) -> str:
        value = None if node is None else self.value(node)
        if not isinstance(value, str):
            raise _NotForeseen
        return value

    def _counted(self, text: str) -> str:
        self._characters -= len(text)
        if self._characters < 0:
            raise _NotForeseen
        return text


def _sum(left: Value, right: Value) -> Value:
    match left, right:
        case str(), str():
            return left + right
        case list(), list():
            return left + right
        case _:
            raise _NotForeseen
