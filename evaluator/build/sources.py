"""What `load_inline` would write into files: the submission's sources, the implied headers, the bindings."""

from evaluator.protocol.frames import BuildRequest, SourceFile


def source_files(request: BuildRequest) -> list[SourceFile]:
    """Give the files of a build: the ones handed to `load`, or the ones that `load_inline` makes of its strings."""
    if request.files:
        return list(request.files)
    files = [SourceFile(name="main.cpp", text=_main_text(request))]
    if request.cuda_sources:
        headers = ["#include <torch/types.h>", "#include <cuda.h>", "#include <cuda_runtime.h>"]
        lines = (headers if request.implicit_headers else []) + request.cuda_sources
        files.append(SourceFile(name="cuda.cu", text="\n".join(lines)))
    return files


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
    """Make a docstring safe inside of a C string literal."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
