"""Approximation of the call graph below `ModelNew.forward`, by names only. Errs on the side of too many functions."""

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from evaluator.findings import Code
from evaluator.lint.messages import Remark, shown
from evaluator.lint.names import DottedNames

Body = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_CALLED_BY_TORCH = ("forward", "backward", "__call__")


class Module(NamedTuple):
    """Indexed submission. `nodes` are all nodes of the tree; `members` maps each `self.NAME` to its assigned values."""

    tree: ast.Module
    nodes: list[ast.AST]
    names: DottedNames
    functions: dict[str, list[Body]]
    classes: dict[str, ast.ClassDef]
    members: dict[str, list[ast.expr]]
    entries: Sequence[str]

    def model(self) -> ast.ClassDef | None:
        """Find the entry class, or the class assigned to its name."""
        return next((entry for name in self.entries if (entry := self._named(name)) is not None), None)

    def _named(self, entry: str) -> ast.ClassDef | None:
        if entry in self.classes:
            return self.classes[entry]
        for node in self.tree.body:
            match node:
                case ast.Assign(targets=[ast.Name(id=target)], value=ast.Name(id=name)) if target == entry:
                    return self.classes.get(name)
                case _:
                    continue
        return None


def take_apart(tree: ast.Module, entries: Sequence[str]) -> Module:
    """Index a module's functions, classes and members by name."""
    functions: dict[str, list[Body]] = {}
    classes: dict[str, ast.ClassDef] = {}
    members: dict[str, list[ast.expr]] = {}
    nodes = list(ast.walk(tree))
    for node in nodes:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                functions.setdefault(name, []).append(node)
            case ast.ClassDef(name=name):
                classes[name] = node
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda() as body):
                functions.setdefault(name, []).append(body)
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
                        members.setdefault(target.attr, []).append(value)
            case _:
                continue
    return Module(tree, nodes, DottedNames(nodes), functions, classes, members, entries)


def other_entry(module: Module) -> Iterator[Remark]:
    """Remark on an entry class without the preferred name, unless the text names the preferred name in any way."""
    preferred, model = module.entries[0], module.model()
    if model is None or model.name == preferred:
        return
    if not any(preferred in text for node in module.nodes for text in _texts(node)):
        yield Remark(Code.OTHER_ENTRY, model.lineno, f"no class {preferred}: the class {shown(model.name)} is graded")


def _texts(node: ast.AST) -> list[str]:
    match node:
        case ast.Name(id=text) | ast.ClassDef(name=text) | ast.alias(name=text, asname=None) | ast.alias(asname=text):
            return [text or ""]
        case ast.Constant(value=str(text)):
            return [text]
        case _:
            return []


def in_forward(module: Module) -> list[Body]:
    """List forward and the functions reachable from forward; empty without a ModelNew with a forward."""
    model = module.model()
    start = None if model is None else _methods(model).get("forward")
    if start is None and model is not None:
        bases = [base.id for base in model.bases if isinstance(base, ast.Name) and base.id in module.classes]
        start = next((method for base in bases if (method := _methods(module.classes[base]).get("forward"))), None)
    bodies: list[Body] = []
    visited: set[int] = set()
    todo: list[Body] = [] if start is None else [start]
    while todo:
        body = todo.pop()
        if id(body) not in visited:
            visited.add(id(body))
            bodies.append(body)
            todo += _mentioned(body, module)
    return bodies


def _mentioned(body: Body, module: Module) -> list[Body]:
    bodies: list[Body] = []
    for node in ast.walk(body):
        match node:
            case ast.Name(id=name):
                bodies += module.functions.get(name, []) + _of_class(module.classes.get(name))
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                # Excludes `super().forward` and forward of members from matching methods of the same name.
                bodies += module.functions.get(name, []) if name not in _CALLED_BY_TORCH else []
                for value in module.members.get(name, []):
                    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
                        bodies += _of_class(module.classes.get(value.func.id))
            case ast.Attribute(attr=name) if name not in _CALLED_BY_TORCH:
                bodies += module.functions.get(name, [])
            case _:
                continue
    return bodies


def _of_class(definition: ast.ClassDef | None) -> list[Body]:
    if definition is None:
        return []
    methods = _methods(definition)
    return [methods[name] for name in _CALLED_BY_TORCH if name in methods]


def _methods(definition: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in definition.body if isinstance(node, ast.FunctionDef)}
