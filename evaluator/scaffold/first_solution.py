"""Generation of a first submission from a reference: Model renamed to ModelNew, the result passed through a kernel.

The reference is parsed with `ast`, never run; the parts taken over stay unchanged to the byte, comments included.
"""

import ast
import re
import shlex
from collections.abc import Iterator
from enum import StrEnum
from string import Template
from typing import NamedTuple

from evaluator.catalog import Origin
from evaluator.catalog.reference import defined_names, names_used_by_model
from evaluator.errors import UsageError
from evaluator.records import Problem


class SolutionLanguage(StrEnum):
    """Languages of a submission's kernel."""

    CUDA = "cuda"
    CPP = "cpp"


_HEAD = Template('''\
"""A submission for $name: $title.

It is correct as it stands, and no faster than the reference: $kernel.
Move work from `forward` into the kernel, step by step, and grade it after each:

    warpgrade grade $name THIS_FILE
"""

$imports

''')

_CUDA = Template('''\
cpp_source = "torch::Tensor finish(torch::Tensor x);"

cuda_source = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

template <typename scalar_t>
__global__ void finish_kernel(const scalar_t* __restrict__ in, scalar_t* __restrict__ out, int64_t count) {
    int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i < count) {
        out[i] = in[i];
    }
}

torch::Tensor finish(torch::Tensor x) {
    x = x.contiguous();
    auto out = torch::empty_like(x);
    const int64_t count = x.numel();
    if (count == 0) {
        return out;
    }
    const int threads = 256;
    const int64_t blocks = (count + threads - 1) / threads;
    AT_DISPATCH_ALL_TYPES_AND3(at::kHalf, at::kBFloat16, at::kBool, x.scalar_type(), "finish", [&] {
        finish_kernel<scalar_t><<<blocks, threads, 0, at::cuda::getCurrentCUDAStream()>>>(
            x.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), count);
    });
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
"""

kernels = load_inline(
    name="$extension",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["finish"],
)

''')

_CPP = Template('''\
cpp_source = r"""
#include <torch/extension.h>

torch::Tensor finish(torch::Tensor x) {
    x = x.contiguous();
    auto out = torch::empty_like(x);
    const int64_t count = x.numel();
    AT_DISPATCH_ALL_TYPES_AND3(at::kHalf, at::kBFloat16, at::kBool, x.scalar_type(), "finish", [&] {
        const scalar_t* from = x.data_ptr<scalar_t>();
        scalar_t* to = out.data_ptr<scalar_t>();
        for (int64_t i = 0; i < count; ++i) {
            to[i] = from[i];
        }
    });
    return out;
}
"""

kernels = load_inline(name="$extension", cpp_sources=cpp_source, functions=["finish"])

''')

_AUTOGRAD = '''
class Finish(torch.autograd.Function):
    """The kernel with its derivative: PyTorch cannot see into a kernel, so backward is written by hand."""

    @staticmethod
    def forward(ctx, x):
        return kernels.finish(x)

    @staticmethod
    def backward(ctx, grad):
        return kernels.finish(grad)

'''

_NEEDED_IMPORTS = ("import torch", "from torch.utils.cpp_extension import load_inline")


class _Edit(NamedTuple):
    """A replacement within one line; lines count from 1, columns in bytes, like `ast`."""

    line: int
    start: int
    end: int
    text: str


def solution_text(problem: Problem, language: SolutionLanguage) -> str:
    """Return the text of a first submission for `problem`.

    Raises:
        UsageError: the reference does not define Model by a class statement.
    """
    tree = ast.parse(problem.source)
    model = next((node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Model"), None)
    if model is None:
        message = f"{problem.name} does not define Model by a class statement, so there is no starting point"
        raise UsageError(message, hint="write a file that defines `class ModelNew(nn.Module)`")
    imports = [_segment(problem.source, node) for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    missing = [line for line in _NEEDED_IMPORTS if line not in imports]
    results, needed = list(_results(model)), names_used_by_model(problem.source)
    used = "its result goes through a kernel that copies it" if results else "its kernel, a copy, is not called yet"
    title = problem.title.replace("\\", " ").replace('"', "'")
    kernel = _CUDA if language is SolutionLanguage.CUDA else _CPP
    parts = [
        _HEAD.substitute(name=as_named(problem), title=title, kernel=used, imports="\n".join([*imports, *missing])),
        kernel.substitute(extension="kernels_" + re.sub(r"\W", "_", problem.name.rpartition("/")[2])),
        *(_spaced(problem.source, node) for node in tree.body if node is not model and needed & defined_names(node)),
        _AUTOGRAD if problem.backward else "",
        "\n" + _model_new(problem.source, model, results, "Finish.apply" if problem.backward else "kernels.finish"),
    ]
    text = "".join(parts)
    compile(text, f"<submission for {problem.name}>", "exec", dont_inherit=True)
    return text


def as_named(problem: Problem) -> str:
    """Return the argument by which the command line finds the problem: a shipped name or a path."""
    by_path = problem.origin in (Origin.FOLDER, Origin.DEFINITION) and not set(problem.path) & set('"\\\n')
    return shlex.quote(problem.path) if by_path else problem.name


def _segment(source: str, node: ast.stmt) -> str:
    """Return the source lines of a statement, including decorators."""
    decorators = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
    return "\n".join(line.decode() for line in source.encode().splitlines()[first - 1 : node.end_lineno])


def _spaced(source: str, node: ast.stmt) -> str:
    """Return a definition with the blank lines customary for its kind."""
    text = _segment(source, node)
    return f"{text}\n" if isinstance(node, ast.Assign | ast.AnnAssign) else f"\n{text}\n\n"


def _model_new(source: str, model: ast.ClassDef, results: list[ast.expr], finish: str) -> str:
    """Return the renamed class, with the `results` of forward passed through `finish`."""
    lines = source.encode().splitlines()
    name_at = lines[model.lineno - 1].index(b"Model", model.col_offset + len(b"class"))
    edits = [_Edit(model.lineno, name_at, name_at + len(b"Model"), "ModelNew")]
    edits += [
        _Edit(node.lineno, node.col_offset, node.col_offset + len(b"Model"), "ModelNew")
        for node in ast.walk(model)
        if isinstance(node, ast.Name) and node.id == "Model"
    ]
    for value in results:
        edits.append(_Edit(value.lineno, value.col_offset, value.col_offset, f"{finish}("))
        edits.append(_Edit(value.end_lineno or 0, value.end_col_offset or 0, value.end_col_offset or 0, ")"))
    for edit in sorted(edits, reverse=True):
        line = lines[edit.line - 1]
        lines[edit.line - 1] = line[: edit.start] + edit.text.encode() + line[edit.end :]
    return _segment(b"\n".join(lines).decode(), model) + "\n"


def _results(model: ast.ClassDef) -> Iterator[ast.expr]:
    """Yield the expressions that forward returns, individually for a literal collection."""
    forward = next((node for node in model.body if isinstance(node, ast.FunctionDef) and node.name == "forward"), None)
    todo: list[ast.AST] = list(forward.body) if forward else []
    while todo:
        match node := todo.pop():
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda() | ast.ClassDef():
                continue
            case ast.Return(value=ast.expr() as value):
                yield from _values(value)
            case _:
                todo.extend(ast.iter_child_nodes(node))


def _values(value: ast.expr) -> Iterator[ast.expr]:
    match value:
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Dict(values=parts):
            for part in parts:
                yield from _values(part)
        case ast.Constant() | ast.Starred():
            return
        case _:
            yield value
