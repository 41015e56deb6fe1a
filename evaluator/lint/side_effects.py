"""Detection of side activities in Python code: streams, threads, files, network, patches, interpreter internals."""

import ast
from collections.abc import Iterator

from evaluator.findings import Code
from evaluator.lint.messages import Remark, shown
from evaluator.lint.names import Names, word_set
from evaluator.lint.reachable import Body, Module

_CALLS: dict[Code, tuple[str, ...]] = {
    Code.SECOND_STREAM: ("torch.cuda.Stream", "torch.cuda.stream", "torch.cuda.ExternalStream", "torch.Stream"),
    Code.THREADS: (
        *("threading.Thread", "threading.Timer", "_thread.start_new_thread", "multiprocessing.", "subprocess."),
        *("concurrent.futures.", "torch.multiprocessing.", "asyncio.to_thread", "asyncio.create_subprocess_exec"),
        *("asyncio.create_subprocess_shell", "os.fork", "os.forkpty", "os.system", "os.popen", "pty."),
        *("os.spawnl", "os.spawnv", "os.posix_spawn", "os.posix_spawnp", "os.execv", "os.execve", "os.execl"),
    ),
    Code.FILES: (
        *("open", "io.open", "os.open", "os.remove", "os.unlink", "os.rename", "os.mkdir", "os.makedirs"),
        *("os.listdir", "os.walk", "os.scandir", "os.memfd_create", "glob.", "shutil.", "tempfile.", "mmap."),
        *("torch.save", "torch.load", "numpy.save", "numpy.load", "pickle.load", "pickle.dump", "shelve.", "sqlite3."),
    ),
    Code.NETWORK: (
        *("socket.", "urllib.", "http.", "requests.", "ftplib.", "smtplib.", "asyncio.open_connection"),
        *("torch.hub.", "huggingface_hub."),
    ),
    Code.INTERNALS: (
        *("sys._getframe", "sys.settrace", "sys.setprofile", "inspect.stack", "inspect.currentframe"),
        *("gc.get_objects", "gc.get_referrers", "gc.get_referents", "ctypes.", "cffi.", "atexit.", "signal."),
        *("os._exit", "os.kill", "os.killpg", "os.abort", "sys.exit", "eval", "exec", "faulthandler."),
    ),
}
"""Functions by full name. A trailing dot denotes a whole module."""
_EXACT = {name: code for code, names in _CALLS.items() for name in names if not name.endswith(".")}
_MODULES = {name[:-1]: code for code, names in _CALLS.items() for name in names if name.endswith(".")}
_FILE_METHODS = frozenset(("write_text", "write_bytes", "read_text", "read_bytes"))
_WORDS = {
    Code.SECOND_STREAM: "creates or enters another stream",
    Code.THREADS: "starts a thread or a process",
    Code.FILES: "uses files",
    Code.NETWORK: "uses the network",
    Code.INTERNALS: "reaches into the interpreter or its process",
}
_SETTINGS = ("torch.backends.", "torch._dynamo.config.", "torch._inductor.config.", "warnings.", "logging.")
"""Attributes intended for assignment."""
_OWN = ("self", "ctx", "cls")
_OF_TENSORS = word_set("""
    to cpu cuda numpy item tolist clone detach contiguous data_ptr shape dtype device size stride numel float double
    __class__ __torch_function__ __torch_dispatch__
    """)


def surroundings(module: Module) -> Iterator[Remark]:
    """Find system calls by full name."""
    for node in module.nodes:
        if not isinstance(node, ast.Call):
            continue
        dotted = module.names.dotted(node.func)
        code = None if dotted is None else _code_of(dotted, module.names)
        if code is not None and dotted is not None:
            yield Remark(code, node.lineno, f"{shown(dotted)} {_WORDS[code]}")
        elif isinstance(node.func, ast.Attribute) and node.func.attr in _FILE_METHODS:
            yield Remark(Code.FILES, node.lineno, f"{node.func.attr} {_WORDS[Code.FILES]}")


def _code_of(dotted: str, names: Names) -> Code | None:
    if "." not in dotted:
        return _EXACT.get(dotted)
    while dotted and dotted.partition(".")[0] in names.sources:
        if dotted in _EXACT:
            return _EXACT[dotted]
        if dotted in _MODULES:
            return _MODULES[dotted]
        dotted = dotted.rpartition(".")[0]
    return None


def patches(module: Module, bodies: list[Body]) -> Iterator[Remark]:
    """Find assignments to foreign attributes: of imported modules and classes, and of tensors."""
    for node in module.nodes:
        for target in _targets(node):
            if (owner := _foreign(target, module.names)) is not None:
                yield Remark(Code.PATCHED, target.lineno, f"replaces {shown(owner)}")
        match node:
            case ast.Call(func=ast.Name(id="setattr" | "delattr"), args=[ast.expr() as thing, *_]):
                if (owner := _imported(thing, module.names)) is not None:
                    yield Remark(Code.PATCHED, node.lineno, f"replaces an attribute of {shown(owner)}")
                elif (
                    isinstance(thing, ast.Name) and thing.id not in _OWN and not isinstance(node.args[1], ast.Constant)
                ):
                    yield Remark(Code.PATCHED, node.lineno, f"sets attributes of {shown(thing.id)} by name")
            case _:
                continue
    yield from _on_one_object(bodies)
    for name, definition in module.classes.items():
        if any(module.names.dotted(base) == "torch.Tensor" for base in definition.bases):
            yield Remark(Code.PATCHED, definition.lineno, f"{shown(name)} is a subclass of torch.Tensor")


def _on_one_object(bodies: list[Body]) -> Iterator[Remark]:
    """Find methods assigned to a single tensor object."""
    for target in (target for body in bodies for node in ast.walk(body) for target in _targets(node)):
        match target:
            case ast.Attribute(value=ast.Name(id=name), attr=attr):
                if attr in _OF_TENSORS and name not in _OWN:
                    yield Remark(Code.PATCHED, target.lineno, f"replaces {shown(name)}.{attr} on one object")
            case _:
                continue


def _targets(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.Assign(targets=targets) | ast.Delete(targets=targets):
            return targets
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            return [target]
        case _:
            return []


def _foreign(target: ast.expr, names: Names) -> str | None:
    """Return the full name of a replaced foreign attribute; None for the submission's own targets."""
    match target:
        case ast.Attribute(value=value, attr=attr):
            name = _imported(value, names)
            full = f"{name}.{attr}"
            return None if name is None or full.startswith(_SETTINGS) else full
        case ast.Subscript(value=value):
            name = names.dotted(value)
            return name if name in ("sys.modules", "builtins.__dict__") else None
        case _:
            return None


def _imported(node: ast.expr, names: Names) -> str | None:
    """Return the full name of an expression rooted in an import."""
    root = node
    while isinstance(root, ast.Attribute):
        root = root.value
    if isinstance(root, ast.Name) and root.id not in names.imported:
        return None
    return names.dotted(node)
