"""Other values for the constants of a reference: candidates and their order. Text and numbers only."""

import ast
import math
import symtable
from collections.abc import Collection, Iterator, Mapping

from evaluator.records import Constant

CAPS = (8192, 4096, 2048, 1024, 512, 256, 128, 96, 64, 48, 32, 24, 16, 12, 8, 6, 4)
_LEAST = 2
_LEAST_EXTENT = 5
"""Constants below are seldom extents: numbers of dimensions, kernel sizes, strides."""


def names_of_the_operation(source: str) -> frozenset[str]:
    r"""Return the module's names that the class Model uses, also by way of other definitions of the module.

    A submission gets inputs and constructor arguments alone, so such a constant is part of the operation.

    >>> source = "n = 4\nm = 8\nk = 2 * n\nclass Model:\n    def forward(self, m): return m * k\n"
    >>> sorted(names_of_the_operation(source))
    ['Model', 'k', 'n']
    """
    uses: dict[str, set[str]] = {}
    for scope in symtable.symtable(source, "reference", "exec").get_children():
        uses.setdefault(scope.get_name(), set()).update(_globals_of(scope))
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            names = [inner for inner in ast.walk(node) if isinstance(inner, ast.Name)]
            for name in names:
                if isinstance(name.ctx, ast.Store):
                    uses.setdefault(name.id, set()).update(used.id for used in names)
    reached, todo = {"Model"}, ["Model"]
    while todo:
        more = uses.get(todo.pop(), set()) - reached
        reached |= more
        todo += more
    return frozenset(reached)


def _globals_of(scope: symtable.SymbolTable) -> set[str]:
    """Return the names that a scope takes from the module, parts included."""
    names = {symbol.get_name() for symbol in scope.get_symbols() if symbol.is_global()}
    return names.union(*map(_globals_of, scope.get_children()))


def candidates(full: Mapping[str, Constant], fixed: Collection[str] = ()) -> Iterator[dict[str, Constant]]:
    """Yield the full constants, then with decreasing caps on all, then with a single constant unchanged.

    The constants in `fixed` are never changed.

    >>> [each["n"] for each in candidates({"n": 48})][:5]
    [48, 24, 16, 12, 8]
    """
    earlier: list[dict[str, Constant]] = []
    spared: tuple[str | None, ...] = (None, *full)
    for spare in spared:
        for cap in (1 << 62, *CAPS):
            scaled = {
                name: value if name == spare or name in fixed else capped(value, cap) for name, value in full.items()
            }
            if scaled not in earlier:
                earlier.append(scaled)
                yield scaled


def capped(value: Constant, cap: int) -> Constant:
    """Return the largest divisor of an integer up to `cap`: constants that must divide each other often still do.

    >>> capped(4096, 100), capped(1000, 100), capped(97, 64), capped(3, 2), capped(0.5, 8), capped([64, 3], 8)
    (64, 100, 64, 3, 0.5, [8, 3])
    """
    if isinstance(value, list):
        return [_capped(extent, cap) for extent in value]
    return value if isinstance(value, bool) or not isinstance(value, int) else _capped(value, cap)


def _capped(value: int, cap: int) -> int:
    if value <= max(cap, 2 * _LEAST):
        return value
    return next((divisor for divisor in range(cap, max(_LEAST, cap // 2) - 1, -1) if value % divisor == 0), cap)


def awkward_groups(constants: Mapping[str, Constant], fixed: Collection[str]) -> list[list[str]]:
    """Return the names of constants to change together: extents of equal values, and each alone.

    >>> awkward_groups({"m": 64, "k": 64, "n": 32, "bins": 8, "dim": 1}, fixed=("bins",))
    [['m', 'k'], ['n'], ['m'], ['k']]
    """
    names = [name for name, value in constants.items() if name not in fixed and _is_extent(value)]
    equal = [[candidate for candidate in names if constants[candidate] == constants[name]] for name in names]
    groups: list[list[str]] = []
    for group in (*equal, *([name] for name in names)):
        if group not in groups:
            groups.append(group)
    return groups


def awkward_values(value: Constant) -> list[Constant]:
    """Return extents near `value` that are multiples of no tile: a smaller prime, one less, one more.

    >>> awkward_values(64), awkward_values([64, 3])
    ([61, 63, 65], [[61, 3], [63, 3], [65, 3]])
    """
    if isinstance(value, list):
        return [list(extents) for extents in zip(*map(_awkward_integers, value), strict=True)]
    return [*_awkward_integers(value)] if isinstance(value, int) else [value]


def _is_extent(value: Constant) -> bool:
    values = value if isinstance(value, list) else [value]
    return any(isinstance(size, int) and not isinstance(size, bool) and size >= _LEAST_EXTENT for size in values)


def _awkward_integers(value: int) -> tuple[int, int, int]:
    if value < _LEAST_EXTENT:
        return value, value, value
    return next(filter(_is_prime, range(value - 1, 1, -1))), value - 1, value + 1


def _is_prime(value: int) -> bool:
    return all(value % factor for factor in range(2, math.isqrt(value) + 1))
