"""Detection of PyTorch operations in forward, of an inherited reference forward, and of suppressed failures."""

import ast
from collections.abc import Iterator

from evaluator.findings import Code
from evaluator.lint.messages import Remark, shown
from evaluator.lint.names import root_name
from evaluator.lint.operations import METHODS, computes
from evaluator.lint.reachable import Body, Module

_BUILDS = ("torch.utils.cpp_extension.load_inline", "torch.utils.cpp_extension.load")
_REFERENCE = "model.Model"
_PLAIN_MODULE = "torch.nn.Module"


def library_calls(module: Module, bodies: list[Body]) -> Iterator[Remark]:
    """Find computing PyTorch calls in `bodies`, the functions reachable from forward."""
    yield from _inherited(module)
    for body in bodies:
        tensors = _tensors_of(body)
        for node in ast.walk(body):
            match node:
                case ast.Call():
                    if (call := _called(node, module, tensors)) is not None:
                        yield Remark(Code.LIBRARY_IN_FORWARD, node.lineno, f"forward calls {call}")
                case ast.BinOp(op=ast.MatMult()):
                    yield Remark(Code.LIBRARY_IN_FORWARD, node.lineno, "forward multiplies matrices with @")
                case _:
                    continue


def _called(call: ast.Call, module: Module, tensors: set[str]) -> str | None:
    """Return a description of the call if the callee is a computing PyTorch function."""
    dotted = module.names.dotted(call.func)
    if dotted is not None and computes(dotted):
        return shown(dotted)
    match call.func:
        case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr="forward"):
            model = module.model()
            return None if model is None or (base := _foreign_base(model, module)) is None else f"forward of {base}"
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            return _member(name, module)
        case ast.Attribute(value=value, attr=name) if name in METHODS and root_name(value) in tensors:
            return f"a tensor's {name}"
        case _:
            return None


def _member(name: str, module: Module) -> str | None:
    """Describe `self.name` if its class is a PyTorch module or the reference."""
    for value in module.members.get(name, []):
        dotted = module.names.dotted(value.func) if isinstance(value, ast.Call) else None
        if dotted is not None and (dotted == _REFERENCE or (dotted.startswith("torch.nn.") and dotted[9:10].isupper())):
            return f"self.{shown(name)}, which is {shown(dotted)}" if dotted != "torch.nn.Parameter" else None
    return None


def _inherited(module: Module) -> Iterator[Remark]:
    model = module.model()
    if model is None or any(isinstance(node, ast.FunctionDef) and node.name == "forward" for node in model.body):
        return
    if (base := _foreign_base(model, module)) is not None:
        yield Remark(Code.LIBRARY_IN_FORWARD, model.lineno, f"{shown(model.name)} inherits its forward from {base}")


def _foreign_base(model: ast.ClassDef, module: Module) -> str | None:
    """Return the PyTorch or reference base class that provides forward."""
    for base in model.bases:
        dotted = module.names.dotted(base)
        if dotted == _REFERENCE or (dotted and dotted.startswith("torch.nn.") and dotted != _PLAIN_MODULE):
            return shown(dotted)
    return None


def _tensors_of(body: Body) -> set[str]:
    """Return the names of tensors: parameters, and variables assigned from known tensors."""
    arguments = body.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg]
    tensors = {argument.arg for argument in every if argument is not None} - {"self", "cls", "ctx"}
    assignments = [node for node in ast.walk(body) if isinstance(node, ast.Assign)]
    for node in sorted(assignments, key=lambda node: node.lineno):
        names = {leaf.id for leaf in ast.walk(node.value) if isinstance(leaf, ast.Name)}
        if names & tensors:
            tensors |= {leaf.id for target in node.targets for leaf in ast.walk(target) if isinstance(leaf, ast.Name)}
    return tensors - {"self", "cls", "ctx"}


def fallbacks(module: Module, bodies: list[Body]) -> Iterator[Remark]:
    """Find a `try` or `suppress` around a build, or around a call in forward, that swallows the failure."""
    in_forward = {id(node) for body in bodies for node in ast.walk(body)}
    for node in module.nodes:
        match node:
            case ast.Try(body=body) | ast.TryStar(body=body):
                risk = _risked(body, module, in_forward=id(node) in in_forward)
                swallowing = [handler for handler in node.handlers if _goes_on(handler)]
                if risk is not None and swallowing:
                    line = swallowing[0].lineno
                    before = f"the try is {line - node.lineno} above"
                    yield Remark(Code.FAILURE_WORKED_AROUND, line, f"continues after {risk} fails ({before})")
            case ast.With(items=items, body=body):
                dotted = [
                    module.names.dotted(i.context_expr.func) for i in items if isinstance(i.context_expr, ast.Call)
                ]
                risk = _risked(body, module, in_forward=id(node) in in_forward)
                if "contextlib.suppress" in dotted and risk is not None:
                    yield Remark(Code.FAILURE_WORKED_AROUND, node.lineno, f"continues after {risk} fails")
            case _:
                continue


def _risked(body: list[ast.stmt], module: Module, *, in_forward: bool) -> str | None:
    """Describe the operation in a block whose failure should be visible."""
    calls = [node for statement in body for node in ast.walk(statement) if isinstance(node, ast.Call)]
    if any(module.names.dotted(call.func) in _BUILDS for call in calls):
        return "a build"
    return "a call in forward" if in_forward and calls else None


def _goes_on(handler: ast.ExceptHandler) -> bool:
    return not any(isinstance(node, ast.Raise) for node in handler.body)
