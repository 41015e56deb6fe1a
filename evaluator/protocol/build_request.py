"""Build request of a `load_inline` call. The module needs no PyTorch: the linter predicts builds with it."""

import posixpath
import re
from collections.abc import Sequence
from typing import Any

from evaluator.protocol.frames import BuildRequest, SourceFile

WITHOUT_EFFECT = frozenset({"build_directory", "verbose", "keep_intermediates", "use_pch"})
"""Arguments of `load_inline` without effect: the judge chooses the build's folder, verbosity and speed."""
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[\"<]([^\">\n]+)[\">]", re.MULTILINE)
_INCLUDE_BY_MACRO = re.compile(r"^[ \t]*#[ \t]*include[ \t]+[A-Za-z_]", re.MULTILINE)


def load_inline(
    name: str,
    cpp_sources: str | Sequence[str],
    cuda_sources: str | Sequence[str] | None = None,
    sycl_sources: str | Sequence[str] | None = None,
    functions: str | Sequence[str] | dict[str, str] | None = None,
    extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    extra_sycl_cflags: Sequence[str] | None = None,
    extra_ldflags: Sequence[str] | None = None,
    extra_include_paths: Sequence[str] | None = None,
    build_directory: str | None = None,  # noqa: ARG001 - without effect
    verbose: bool = False,  # noqa: ARG001, FBT001, FBT002
    with_cuda: bool | None = None,  # noqa: FBT001
    with_sycl: bool | None = None,  # noqa: FBT001
    is_python_module: bool = True,  # noqa: FBT001, FBT002
    with_pytorch_error_handling: bool = True,  # noqa: FBT001, FBT002
    keep_intermediates: bool = True,  # noqa: ARG001, FBT001, FBT002
    use_pch: bool = False,  # noqa: ARG001, FBT001, FBT002
    no_implicit_headers: bool = False,  # noqa: FBT001, FBT002
) -> BuildRequest:
    """Convert the arguments of PyTorch's `load_inline` to a request. Raises RuntimeError for SYCL."""
    if sycl_sources or with_sycl or extra_sycl_cflags:
        raise RuntimeError("SYCL extensions are not supported")
    cuda = as_list(cuda_sources)
    return BuildRequest(
        name=name,
        cpp_sources=as_list(cpp_sources),
        cuda_sources=cuda,
        functions=_function_table(functions),
        extra_cflags=as_list(extra_cflags),
        extra_cuda_cflags=as_list(extra_cuda_cflags),
        extra_ldflags=as_list(extra_ldflags),
        extra_include_paths=as_list(extra_include_paths),
        with_cuda=bool(cuda) if with_cuda is None else with_cuda,
        python_module=is_python_module,
        error_handling=with_pytorch_error_handling,
        implicit_headers=not no_implicit_headers,
    )


def may_include(request: BuildRequest, headers: Sequence[SourceFile]) -> bool:
    """Return whether the strings of a `load_inline` may include one of the submission's own `headers`."""
    texts = "\n".join([*request.cpp_sources, *request.cuda_sources])
    names = {posixpath.basename(header.name) for header in headers}
    included = {posixpath.basename(path) for path in _INCLUDE.findall(texts)}
    return not names.isdisjoint(included) or _INCLUDE_BY_MACRO.search(texts) is not None


def as_list(value: Any) -> list[str]:
    """Return a list of strings for a single string, a sequence, or None."""
    if value is None:
        return []
    return [value] if isinstance(value, str) else [str(item) for item in value]


def _function_table(functions: str | Sequence[str] | dict[str, str] | None) -> dict[str, str] | None:
    """Map each bound function to its docstring; without a docstring, to its name."""
    if functions is None:
        return None
    if isinstance(functions, dict):
        return dict(functions)
    return {name: name for name in as_list(functions)}
