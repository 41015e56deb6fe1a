"""Static name resolution for a Python module: imports, aliases, and `getattr` with a literal name."""

import ast
from collections.abc import Iterator, Sequence

_BUILTIN_MODULES = frozenset(("sys", "os", "builtins"))
_MAX_PARTS = 16


class DottedNames:
    """Mapping from a module's names to full dotted names, without scopes."""

    def __init__(self, nodes: Sequence[ast.AST]) -> None:
        """Read all imports among the nodes of a tree, then aliases in text order.

        `imported` holds the names bound by imports, `sources` the root modules, `meanings` the full imported names.
        """
        self._meaning: dict[str, str] = {}
        self.imported: set[str] = set()
        self.sources: set[str] = set()
        self.meanings: set[str] = set()
        for node in nodes:
            for name, meaning in _imports(node):
                self._meaning[name] = meaning
                self.imported.add(name)
                self.sources.add(meaning.partition(".")[0])
                self.meanings.add(meaning)
        for node in nodes:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name | ast.Attribute | ast.Call):
                self._read_alias(node)

    def _read_alias(self, node: ast.Assign) -> None:
        meaning = self.dotted(node.value)
        if meaning is None or meaning.partition(".")[0] not in self._roots:
            return
        for target in node.targets:
            if isinstance(target, ast.Name) and target.id not in self.imported:
                self._meaning[target.id] = meaning

    @property
    def _roots(self) -> set[str]:
        return {meaning.partition(".")[0] for meaning in self._meaning.values()} | _BUILTIN_MODULES

    def dotted(self, node: ast.expr) -> str | None:
        """Return the full dotted name of an expression; None for other expressions.

        >>> tree = ast.parse("import torch.nn.functional as F")
        >>> names = DottedNames(list(ast.walk(tree)))
        >>> names.dotted(ast.parse("F.relu", mode="eval").body)
        'torch.nn.functional.relu'
        """
        attributes: list[str] = []
        while len(attributes) < _MAX_PARTS:
            match node:
                case ast.Attribute(value=value, attr=attr):
                    attributes.append(attr)
                    node = value
                case ast.Call(func=ast.Name(id="getattr"), args=[value, ast.Constant(value=str() as attr), *_]):
                    attributes.append(attr)
                    node = value
                case ast.Call(args=[ast.Constant(value=str() as module)]) if self._imports_module(node):
                    return ".".join([module, *reversed(attributes)])
                case ast.Name(id=name):
                    return ".".join([self._meaning.get(name, name), *reversed(attributes)])
                case _:
                    return None
        return None

    def _imports_module(self, call: ast.Call) -> bool:
        match call.func:
            case ast.Name(id=name):
                return name == "__import__" or self._meaning.get(name) == "importlib.import_module"
            case ast.Attribute(value=ast.Name(id=name), attr="import_module"):
                return self._meaning.get(name) == "importlib"
            case _:
                return False


def _imports(node: ast.AST) -> Iterator[tuple[str, str]]:
    match node:
        case ast.Import(names=aliases):
            for alias in aliases:
                top = alias.name.partition(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (top, top)
        case ast.ImportFrom(module=str() as module, names=aliases, level=0):
            for alias in aliases:
                yield alias.asname or alias.name, f"{module}.{alias.name}"
        case _:
            return


def root_name(node: ast.expr) -> str | None:
    """Return the root name of a chain of attributes, calls and subscripts.

    >>> root_name(ast.parse("x.view(-1)[0].t()", mode="eval").body)
    'x'
    """
    while True:
        match node:
            case ast.Attribute(value=value) | ast.Subscript(value=value):
                node = value
            case ast.Call(func=function):
                node = function
            case ast.Name(id=name):
                return name
            case _:
                return None


def word_set(text: str) -> frozenset[str]:
    """Return the words of a text. Tables of names are easier to read as text."""
    return frozenset(text.split())
