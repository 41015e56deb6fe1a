"""Languages of a submission, by imports, calls, C++ headers and CUDA code."""

import ast
from collections.abc import Iterator

from evaluator.languages.by_text import included_headers, mentions_in_text
from evaluator.languages.language import Mentions
from evaluator.languages.registry import recognized
from evaluator.lint.embedded import texts
from evaluator.lint.names import Names
from evaluator.lint.reachable import Module
from evaluator.protocol.submission_files import cpp_files, is_several
from evaluator.records import Toolchain

_CUDA_FILES = (".cu", ".cuh")
_KERNEL = "__global__"


def languages(module: Module, source: str) -> list[Toolchain]:
    """Return all languages of a parsed submission. A file may contain several."""
    strings = [text for _, text in texts(module.nodes)]
    files = cpp_files(source)
    code = [*strings, *(file.text for file in files)]
    dotted = set(_dotted(module))
    if is_several(source):  # The manifest may ask for an extension.
        dotted |= {name for name in mentions_in_text(source).dotted if name.startswith("torch.utils.")}
    mentions = Mentions(
        dotted=frozenset(dotted),
        includes=frozenset().union(*map(included_headers, code)),
        has_kernel=any(_KERNEL in text for text in code)
        or any(text.endswith(_CUDA_FILES) for text in strings)
        or any(file.path.endswith(_CUDA_FILES) for file in files)
        or any(_passes_cuda(node) for node in module.nodes),
    )
    return recognized(mentions)


def _dotted(module: Module) -> Iterator[str]:
    """Yield the full names of imported objects, and of used objects of imported modules."""
    names: Names = module.names
    yield from names.meanings
    for node in module.nodes:
        match node:
            case ast.Attribute():
                name = names.dotted(node)
                if name is not None and name.partition(".")[0] in names.sources:
                    yield name
            case ast.Call():  # `getattr` and `import_module` with literal names.
                if (name := names.dotted(node)) is not None:
                    yield name
            case _:
                continue


def _passes_cuda(node: ast.AST) -> bool:
    """Return whether a call passes CUDA sources, even with text from run time."""
    match node:
        case ast.keyword(arg="cuda_sources", value=ast.Constant(value=None | "")):
            return False
        case ast.keyword(arg="cuda_sources", value=ast.List(elts=[]) | ast.Tuple(elts=[])):
            return False
        case ast.keyword(arg="cuda_sources"):
            return True
        case _:
            return False
