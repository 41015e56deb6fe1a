"""`load_inline` and `load` for submissions: request the build from the judge and load the returned library.

The runner neither compiles nor caches. The compiler works in a separate sandbox without the submission's Python code,
so a submission cannot poison the build cache.
"""

import functools
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import torch
from msgspec.structs import replace
from torch.utils import cpp_extension

from evaluator.protocol import build_request
from evaluator.protocol.build_request import as_list, may_include
from evaluator.protocol.frames import BuildReply, BuildRequest, Frame, SourceFile
from evaluator.protocol.frames.oversize import unsendable_request
from evaluator.protocol.operations import operator_of
from evaluator.protocol.submission_files import HEADER_SUFFIXES

FILES_FOLDER = "files"
"""Folder of a submission of several files, in the runner's private folder."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,200}\Z")
_REGISTERS = b"_ZN5torch7Library"
"""Symbol imported by libraries with operators. Listing all operators takes ten milliseconds."""

Watch = Callable[[ModuleType | None, Sequence[Any]], None]
"""Callback for each loaded library: the module, if the library is a Python module, and operators (`TORCH_LIBRARY`)."""


class BuildChannel(Protocol):
    """Build service: the channel to the judge, or a folder of prebuilt libraries."""

    def send(self, frame: Frame) -> None:
        """Send a build request."""

    def receive(self) -> Frame:
        """Wait for the reply."""

    def take_descriptors(self) -> list[int]:
        """Return the reply's descriptors. The caller closes them."""


class ExtensionLoader:
    """Implementation of `load_inline` and `load` for one runner."""

    def __init__(self, channel: BuildChannel, folder: Path, watch: Watch | None = None) -> None:
        """Request builds over `channel`, store libraries in `folder`, and report each library to `watch`.

        The files of a submission of several files lie in the folder `FILES_FOLDER` beside `folder`.
        """
        self._watch = watch
        self._channel = channel
        self._folder = folder
        self._requests: dict[str, list[BuildRequest]] = {}
        self._loaded: dict[str, ModuleType | str] = {}

    @property
    def _own(self) -> Path:
        return self._folder.parent / FILES_FOLDER

    def install(self) -> None:
        """Replace PyTorch's functions."""
        # `inspect.signature` finds PyTorch's parameters.
        cpp_extension.load_inline = functools.update_wrapper(
            functools.partial(self.load_inline), build_request.load_inline
        )
        cpp_extension.load = self.load

    def load_inline(self, *arguments: Any, **keywords: Any) -> ModuleType | str:
        """Build an extension from strings, with the parameters and results of PyTorch's `load_inline`.

        The strings may include headers of the submission's own folder.
        """
        request = build_request.load_inline(*arguments, **keywords)
        return self._build(self._with_headers(request) if self._own.exists() else request)

    def _with_headers(self, request: BuildRequest) -> BuildRequest:
        """Add the submission's own headers, if the strings may include an own header. The key of other builds stays."""
        headers = self._headers(())
        if not may_include(request, headers):
            return request
        paths = [self._own_path(Path(path)) or path for path in request.extra_include_paths]
        return replace(request, headers=headers, extra_include_paths=paths)

    def load(
        self,
        name: str,
        sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        extra_cflags: Sequence[str] | None = None,
        extra_cuda_cflags: Sequence[str] | None = None,
        extra_sycl_cflags: Sequence[str] | None = None,
        extra_ldflags: Sequence[str] | None = None,
        extra_include_paths: Sequence[str] | None = None,
        build_directory: str | None = None,  # noqa: ARG002
        verbose: bool = False,  # noqa: ARG002, FBT001, FBT002
        with_cuda: bool | None = None,  # noqa: FBT001
        with_sycl: bool | None = None,  # noqa: FBT001
        is_python_module: bool = True,  # noqa: FBT001, FBT002
        is_standalone: bool = False,  # noqa: FBT001, FBT002
        keep_intermediates: bool = True,  # noqa: ARG002, FBT001, FBT002
    ) -> ModuleType | str:
        """Build an extension from the submission's files, with the parameters of PyTorch's `load`."""
        if with_sycl or extra_sycl_cflags or is_standalone:
            raise RuntimeError("SYCL and standalone extensions are not supported")
        paths = [sources] if isinstance(sources, str | os.PathLike) else list(sources)
        files = [self._source(Path(path)) for path in paths]
        has_cuda = any(file.name.endswith(".cu") for file in files)
        return self._build(
            BuildRequest(
                name=name,
                files=files,
                headers=self._headers({file.name for file in files}),
                extra_cflags=as_list(extra_cflags),
                extra_cuda_cflags=as_list(extra_cuda_cflags),
                extra_ldflags=as_list(extra_ldflags),
                extra_include_paths=[self._own_path(Path(path)) or path for path in as_list(extra_include_paths)],
                with_cuda=has_cuda if with_cuda is None else with_cuda,
                python_module=is_python_module,
            )
        )

    def load_file(
        self, name: str, file_name: str, text: str, flags: Sequence[str], include_paths: Sequence[str]
    ) -> str:
        """Build one CUDA file as a library without Python bindings, and return the library's path."""
        return str(
            self._build(
                BuildRequest(
                    name=name,
                    files=[SourceFile(name=file_name, text=text)],
                    extra_cuda_cflags=list(flags),
                    extra_include_paths=list(include_paths),
                    with_cuda=True,
                    python_module=False,
                )
            )
        )

    def _source(self, path: Path) -> SourceFile:
        """Read a source. A relative path may begin in the submission's own folder."""
        if not path.is_absolute() and not path.exists():
            path = self._own / path
        return SourceFile(name=self._own_path(path) or path.name, text=path.read_bytes().decode())

    def _own_path(self, path: Path) -> str | None:
        """Return a path below the submission's own folder, which is the compiler's folder; None for another path."""
        if not self._own.exists() or not path.resolve().is_relative_to(self._own.resolve()):
            return None
        return path.resolve().relative_to(self._own.resolve()).as_posix()

    def _headers(self, listed: Collection[str]) -> list[SourceFile]:
        """Return the headers among the submission's own files."""
        paths = sorted(path for path in self._own.rglob("*") if path.suffix in HEADER_SUFFIXES and path.is_file())
        headers = [self._source(path) for path in paths]
        return [header for header in headers if header.name not in listed]

    def _build(self, request: BuildRequest) -> ModuleType | str:
        if (problem := unsendable_request(request)) is not None:
            raise RuntimeError(f"Error building extension '{request.name[:200]}': {problem}")
        request = self._with_free_name(request)
        if request.name in self._loaded:
            return self._loaded[request.name]
        self._channel.send(request)
        reply = self._channel.receive()
        if not isinstance(reply, BuildReply):
            raise TypeError("the judge answered a build with something else")
        if not reply.ok:
            raise RuntimeError(f"Error building extension '{request.name}': {reply.log}")
        path, registers = self._store(request.name)
        before = _operator_names() if registers and self._watch is not None else frozenset()
        module = _import_library(request.name, path) if request.python_module else None
        if module is None:
            torch.ops.load_library(str(path))  # type: ignore[no-untyped-call]
        if self._watch is not None:
            self._watch(module, _operators(_operator_names() - before) if registers else [])
        self._loaded[request.name] = str(path) if module is None else module
        return self._loaded[request.name]

    def _with_free_name(self, request: BuildRequest) -> BuildRequest:
        """Rename a second extension of the same name and other contents, as PyTorch does."""
        if not _NAME.match(request.name):
            raise ValueError(f"an extension's name is a C identifier, not {request.name[:100]!r}")
        earlier = self._requests.setdefault(request.name, [])
        if request not in earlier:
            earlier.append(request)
        version = earlier.index(request)
        return replace(request, name=f"{request.name}_v{version}") if version else request

    def _store(self, name: str) -> tuple[Path, bool]:
        """Write the received library to a file, and return whether the library registers operators."""
        (descriptor,) = self._channel.take_descriptors()
        folder = self._folder / name
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}.so"
        with os.fdopen(descriptor, "rb") as file:
            library = file.read()
        path.write_bytes(library)
        return path, _REGISTERS in library


def _operator_names() -> frozenset[str]:
    return frozenset(torch._C._dispatch_get_all_op_names())  # noqa: SLF001


def _operators(names: Collection[str]) -> list[Any]:
    """Return the callables of operators: each overload, and the packet that selects an overload."""
    operators = [operator for name in sorted(names) if (operator := operator_of(name)) is not None]
    return [*operators, *dict.fromkeys(operator.overloadpacket for operator in operators)]


def _import_library(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no extension module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules.setdefault(name, module)
    return module
