"""Constants and literals of a reference, read with `ast`.

A tuple of integers has the value of a list, and stays a tuple in the source text (`Literal.spelt`).
"""

import ast
import math
import symtable
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from evaluator.catalog.text import Origin, one_of
from evaluator.errors import ProblemError
from evaluator.records import CaseName, Constant, Problem, SizeName


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


_NAMED = 20

REQUIRED_NAMES = ("Model", "get_inputs", "get_init_inputs")

_OWN_SCOPE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_COMPREHENSION = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class ParsedReference(NamedTuple):
    """A reference, parsed but not run.

    `constants` are the names set once, at module level, to a literal on one line: `n = 4`, `h = w = 2 * 64`, `d, h, w =
    16, 32, 32`. `forward` is None if the file's `Model` defines no `forward`. `has_check`: a function `check` of two
    parameters is there.
    """

    constants: Mapping[str, Literal]
    forward: tuple[str, ...] | None
    docstring: str
    has_check: bool


def read_reference(source: str, where: str) -> ParsedReference:
    """Parse the text of a reference; `where` names the file in messages.

    Raises:
        ProblemError: the text is not Python, or `Model`, `get_inputs` or `get_init_inputs` is missing.
    """
    tree = parse(source, where)
    bound = Counter(_bound_names(tree))
    missing = [name for name in REQUIRED_NAMES if name not in bound]
    if missing:
        message = f"{where}: does not define {' or '.join(missing)}"
        raise ProblemError(message, hint=f"a reference defines {', '.join(REQUIRED_NAMES)} at its top level")
    model = next((node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Model"), None)
    return ParsedReference(
        constants={name: literal for name, literal in module_literals(tree) if bound[name] == 1},
        forward=_forward_parameters(model),
        docstring=(ast.get_docstring(model) or "") if model else "",
        has_check=any(_is_check(node) for node in tree.body),
    )


def sized_source(problem: Problem, case: CaseName) -> str:
    """Replace the literals in the reference by the axes of `case`; every other byte and all line numbers stay.

    Raises:
        ProblemError: the problem lacks the case, or the case contradicts the reference.
    """
    if case not in problem.cases:
        message = f"{problem.name} has no case '{case}'; {one_of(list(problem.cases)[:_NAMED])}"
        hint = f"choose one with --case {next(iter(problem.cases), SizeName.FULL)}; `problems show` lists them"
        if problem.origin == Origin.KERNELBENCH:
            hint += ", or write a problem with sizes of your own: warpgrade new problem"
        raise ProblemError(message, hint=hint)
    return with_constants(problem.source, problem.cases[case].axes, f"{problem.name}, case {case}")


def with_constants(source: str, values: Mapping[str, Constant], where: str) -> str:
    """Replace the literals of constants by `values`. Raises ProblemError for an unknown constant."""
    constants = read_reference(source, where).constants
    texts: dict[LiteralSpan, str | None] = {}
    for name, value in values.items():
        if name not in constants:
            raise ProblemError(f"{where}: {name} is not a module-level constant of the reference")
        literal = constants[name]
        same = type(value) is type(literal.value) and value == literal.value
        text = None if same else literal.spelt(value)
        if texts.setdefault(literal.span, text) != text:
            raise ProblemError(f"{where}: {name} shares its literal with another constant; set both to one value")
    # Split only at Python's line ends: str.splitlines would also split at form feeds and U+2028.
    lines = source.encode().splitlines(keepends=True)
    for span, text in sorted(texts.items(), reverse=True):
        if text is not None:
            line = lines[span.line - 1]
            lines[span.line - 1] = line[: span.start] + text.encode() + line[span.end :]
    return b"".join(lines).decode()


def parse(source: str, where: str) -> ast.Module:
    """Return the syntax tree of a text. Raises ProblemError, with the line, if the text is not Python."""
    try:
        with warnings.catch_warnings():
            # An invalid escape in a docstring does not concern a listing.
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except SyntaxError as error:
        raise ProblemError(f"{where}: line {error.lineno or 0}: not Python: {error.msg}") from error
    except ValueError as error:
        raise ProblemError(f"{where}: not Python: {error}") from error
    except (RecursionError, MemoryError) as error:
        raise ProblemError(f"{where}: nested too deeply") from error


def _bound_names(tree: ast.Module) -> Iterator[str]:
    """Yield every name that the module binds, once per binding, without names in the scopes of functions."""
    todo: list[ast.AST] = list(tree.body)
    while todo:
        node = todo.pop()
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.Name(ctx=ast.Store() | ast.Del()):
                yield node.id
            case ast.alias():
                yield node.asname or node.name.partition(".")[0]
            case _:
                pass
        if not isinstance(node, _OWN_SCOPE + _COMPREHENSION):
            todo.extend(ast.iter_child_nodes(node))


def _is_check(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == "check" and len(node.args.args) == 2


def _forward_parameters(model: ast.ClassDef | None) -> tuple[str, ...] | None:
    for node in model.body if model else ():
        if isinstance(node, ast.FunctionDef) and node.name == "forward":
            arguments = node.args
            positional = [*arguments.posonlyargs, *arguments.args][1:]
            return tuple(argument.arg for argument in [*positional, *arguments.kwonlyargs])
    return None


def names_used_by_model(source: str) -> frozenset[str]:
    r"""Return the module's names that the class Model uses, also by way of other definitions of the module.

    Parameters and locals are no names of the module. A submission gets inputs and constructor arguments alone, so a
    constant with such a name is part of the operation.

    >>> source = "n = 4\nm = 8\nk = 2 * n\nclass Model:\n    def forward(self, m): return m * k\n"
    >>> sorted(names_used_by_model(source))
    ['Model', 'k', 'n']
    """
    uses: dict[str, set[str]] = {}
    for scope in symtable.symtable(source, "reference", "exec").get_children():
        uses.setdefault(scope.get_name(), set()).update(_globals_of(scope))
    for node in ast.parse(source).body:
        outside: list[ast.AST] = []
        match node:
            case ast.ClassDef(bases=bases, keywords=keywords, decorator_list=decorators):
                outside = [*bases, *keywords, *decorators]
            case ast.FunctionDef(args=arguments, decorator_list=decorators):
                outside = [*arguments.defaults, *filter(None, arguments.kw_defaults), *decorators]
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                outside = [node]
            case _:
                pass
        names = {inner.id for part in outside for inner in ast.walk(part) if isinstance(inner, ast.Name)}
        for name in defined_names(node):
            uses.setdefault(name, set()).update(names)
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


def defined_names(statement: ast.stmt) -> set[str]:
    """Return the names that a definition or an assignment sets."""
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
            names = (node for node in ast.walk(statement) if isinstance(node, ast.Name))
            return {node.id for node in names if isinstance(node.ctx, ast.Store)}
        case _:
            return set()
