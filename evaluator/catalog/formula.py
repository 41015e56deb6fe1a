"""Integer formulas of a reference's constants: `4 * rows * (columns + 1) // 2`. No code is run."""

import ast
from collections.abc import Mapping

from evaluator.records import Constant


class FormulaError(Exception):
    """An invalid formula, or a formula without a value, with the reason."""


def evaluate(formula: str, constants: Mapping[str, Constant]) -> int:
    """Evaluate `formula`: integers, names of `constants`, + - * // and parentheses.

    Powers are excluded: a short power can take forever.

    Raises:
        FormulaError: the formula is invalid, names something else, or has a negative value.

    >>> evaluate("4 * n * (n + 1) // 2", {"n": 3})
    24

    Raises:
        FormulaError: it is no such formula, names something else, or its value is negative.
    """
    try:
        tree = ast.parse(formula.strip(), mode="eval")
        value = _value(tree.body, constants)
    except (SyntaxError, ValueError):
        raise FormulaError("is not a formula") from None
    except (RecursionError, MemoryError):
        raise FormulaError("is too long") from None
    if value < 0:
        raise FormulaError(f"gives {value}; expected 0 or more")
    return value


def _value(node: ast.expr, constants: Mapping[str, Constant]) -> int:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.Name(id=name):
            constant = constants.get(name)
            if not isinstance(constant, int) or isinstance(constant, bool):
                available = ", ".join(key for key, number in constants.items() if type(number) is int)
                raise FormulaError(
                    f"names {name}, which is not an integer constant of the reference; available: {available}"
                )
            return constant
        case ast.BinOp(left=left, op=operator, right=right):
            return _arithmetic(_value(left, constants), operator, _value(right, constants))
        case _:
            raise FormulaError("may hold whole numbers, names, + - * // and parentheses only")


def _arithmetic(left: int, operator: ast.operator, right: int) -> int:
    match operator:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.FloorDiv() if right:
            return left // right
        case ast.FloorDiv():
            raise FormulaError("divides by zero")
        case _:
            raise FormulaError("may hold whole numbers, names, + - * // and parentheses only")
