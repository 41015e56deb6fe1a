"""Source files of a build, as written by PyTorch's `load_inline`: sources, implicit headers, bindings."""

from evaluator.protocol.frames import BuildRequest, SourceFile


def source_files(request: BuildRequest) -> list[SourceFile]:
    """Return the files of a build: the files passed to `load`, or generated from `load_inline`'s strings."""
    if request.files:
        return list(request.files)
    files = [SourceFile(name="main.cpp", text=_main_text(request))]
    if request.cuda_sources:
        headers = ["#include <torch/types.h>", "#include <cuda.h>", "#include <cuda_runtime.h>"]
        lines = (headers if request.implicit_headers else []) + request.cuda_sources
        files.append(SourceFile(name="cuda.cu", text="\n".join(lines)))
    return files


def all_files(request: BuildRequest) -> list[SourceFile]:
    """Return the files of a build, and the submission's headers beside them."""
    return [*source_files(request), *request.headers]


def _main_text(request: BuildRequest) -> str:
    headers = ["#include <torch/extension.h>"] if request.implicit_headers else []
    return "\n".join([*headers, *request.cpp_sources, *_bindings(request)])


def _bindings(request: BuildRequest) -> list[str]:
    if request.functions is None:
        return []
    lines = ["PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {"]
    for function, description in request.functions.items():
        target = f"torch::wrap_pybind_function({function})" if request.error_handling else function
        lines.append(f'm.def("{function}", {target}, "{_escaped(description)}");')
    return [*lines, "}"]


def _escaped(text: str) -> str:
    """Escape a docstring for a C string literal."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
