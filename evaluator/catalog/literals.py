"""Literals assigned to names at module level, with their positions: `n = 4`, `h = w = 2 * 64`, `d = [64, 32]`.

A tuple of integers has the value of a list, and stays a tuple in the source text (`Literal.spelt`).
"""

import ast
import math
from collections.abc import Iterator
from typing import NamedTuple

from evaluator.records import Constant


class LiteralSpan(NamedTuple):
    """Position of a literal: line, from 1, and columns in bytes of UTF-8, like `ast`."""

    line: int
    start: int
    end: int


class Literal(NamedTuple):
    """The value of a module-level constant and the position of its literal."""

    value: Constant
    span: LiteralSpan
    is_tuple: bool = False

    def spelt(self, value: Constant) -> str:
        """Return the source text of another value in place of the literal."""
        return repr(tuple(value)) if self.is_tuple and isinstance(value, list) else repr(value)


def module_literals(tree: ast.Module) -> Iterator[tuple[str, Literal]]:
    """Yield each name that a module-level statement sets to a literal, in order, with the literal."""
    for node in tree.body:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    yield from _assigned(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                yield from _assigned(target, value)
            case _:
                pass


def _assigned(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, Literal]]:
    """Pair the names of a target with the literals on the right, through tuples of equal length."""
    match target, value:
        case ast.Name(id=name), _:
            constant = _finite_literal(value)
            if constant is not None and value.end_lineno == value.lineno:
                span = LiteralSpan(value.lineno, value.col_offset, value.end_col_offset or 0)
                yield name, Literal(constant, span, isinstance(value, ast.Tuple))
        case ((ast.Tuple(elts=targets) | ast.List(elts=targets)), (ast.Tuple(elts=values) | ast.List(elts=values))):
            if len(targets) == len(values):
                for element, its_value in zip(targets, values, strict=True):
                    yield from _assigned(element, its_value)
        case _:
            pass


def _finite_literal(node: ast.expr) -> Constant | None:
    try:
        value = _literal_value(node)
    except (RecursionError, OverflowError):
        return None
    # JSON has no infinite numbers, so no card could contain one.
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _literal_value(node: ast.expr) -> Constant | None:
    """Evaluate a literal, a list or tuple of integers, or arithmetic of number literals.

    Powers are excluded: a short power can take forever.
    """
    match node:
        case ast.Constant(value=(bool() | int() | float() | str()) as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            number = _number(operand)
            return None if number is None else -number
        case ast.BinOp(left=left, op=operator, right=right):
            return _arithmetic(_number(left), operator, _number(right))
        case ast.List(elts=[_, *_] as items) | ast.Tuple(elts=[_, *_] as items):
            values = [_literal_value(item) for item in items]
            whole = [value for value in values if type(value) is int]
            return whole if len(whole) == len(values) else None
        case _:
            return None


def _number(node: ast.expr) -> int | float | None:
    value = _literal_value(node)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _arithmetic(left: float | None, operator: ast.operator, right: float | None) -> int | float | None:
    if left is None or right is None:
        return None
    match operator:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.FloorDiv() if right:
            return left // right
        case ast.Div() if right:
            return left / right
        case _:
            return None
