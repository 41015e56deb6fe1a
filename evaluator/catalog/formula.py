"""Integer formulas of named integers: `4 * rows * (columns + 1) // 2`. No code is run."""

import ast
import functools
from collections.abc import Mapping

from evaluator.records import Constant

_LONGEST = 1000
"""Characters of a formula, far above any."""
_LARGEST_BITS = 256
"""Far above any count of bytes or operations: a short power could take forever otherwise."""
_ALLOWED = "may hold whole numbers, names, + - * / // % ** and parentheses only"


class FormulaError(Exception):
    """An invalid formula, or a formula without a value, with the reason."""


def evaluate(formula: str, constants: Mapping[str, Constant]) -> int:
    """Evaluate `formula`: integers, names of `constants`, + - * / // % ** and parentheses.

    A division `/` must leave no remainder.

    Raises:
        FormulaError: the formula is invalid, names something else, or has a negative or a huge value.

    >>> evaluate("4 * n * (n + 1) // 2", {"n": 3})
    24
    """
    if len(formula) > _LONGEST:
        raise FormulaError("is too long")
    try:
        value = _value(_parsed(formula.strip()).body, constants)
    except (SyntaxError, ValueError):
        raise FormulaError("is not a formula") from None
    except (RecursionError, MemoryError):
        raise FormulaError("is too long") from None
    if value < 0:
        raise FormulaError(f"gives {value}; expected 0 or more")
    return value


@functools.lru_cache(256)
def _parsed(formula: str) -> ast.Expression:
    """Parse a formula: one definition has few, and evaluates them for each of its workloads."""
    return ast.parse(formula, mode="eval")


def one_line(formula: str) -> str:
    r"""Return a formula for `evaluate` as a line of Python, with `int` around an exact division.

    >>> one_line("(rows + # all\n 1) / 2")
    'int((rows + 1) / 2)'
    """
    text = ast.unparse(ast.parse(formula.strip(), mode="eval"))
    return f"int({text})" if "/" in text.replace("//", "") else text


def _value(node: ast.expr, constants: Mapping[str, Constant]) -> int:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return _bounded(value)
        case ast.Name(id=name):
            constant = constants.get(name)
            if not isinstance(constant, int) or isinstance(constant, bool):
                available = ", ".join(key for key, number in constants.items() if type(number) is int)
                raise FormulaError(f"names {name}, which is no integer constant; available: {available}")
            return _bounded(constant)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, constants)
        case ast.BinOp(left=left, op=operator, right=right):
            return _bounded(_arithmetic(_value(left, constants), operator, _value(right, constants)))
        case _:
            raise FormulaError(_ALLOWED)


def _bounded(value: int) -> int:
    if value.bit_length() > _LARGEST_BITS:
        raise FormulaError("gives a huge number")
    return value


def _arithmetic(left: int, operator: ast.operator, right: int) -> int:
    match operator:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.FloorDiv() | ast.Div() | ast.Mod() if not right:
            raise FormulaError("divides by zero")
        case ast.FloorDiv():
            return left // right
        case ast.Mod():
            return left % right
        case ast.Div():
            if left % right:
                raise FormulaError(f"gives {left} / {right}, which is no whole number")
            return left // right
        case ast.Pow():
            return _power(left, right)
        case _:
            raise FormulaError(_ALLOWED)


def _power(base: int, exponent: int) -> int:
    if exponent < 0:
        raise FormulaError(f"gives {base} ** {exponent}, which is no whole number")
    if base.bit_length() * exponent > _LARGEST_BITS and abs(base) > 1:
        raise FormulaError("gives a huge number")
    return int(base**exponent)
