"""Compilation by Triton in a runner: the cache of kernels, and the text of errors.

Triton compiles in the runner, in the first checked call: under the runner's limits, in the runner's sandbox, under the
time limit of a first call, and before anything is timed. A submission can write anything into the compiler's cache. The
cache is therefore private to a runner, and only runners of the same submission in the same grade receive the content.
A submission can change the own kernels alone, as in any call, and no kernel of another submission or grade. No compiled
kernel is stored on disk, so every grade of a text compiles once. The alternative, a shared store of kernels, would
require a judge that compiles Triton's intermediate form in a separate sandbox.

The cache also holds the autotuner's choice (`TRITON_CACHE_AUTOTUNING`): the checked configuration is the timed one.

The judge trusts none of the reports: a failure with a forged reason is still a failure.
"""

import gc
import linecache
import os
import sys
import traceback
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from evaluator.protocol.frames import CompiledKernel, CompiledKernels, RefusedKernel
from evaluator.protocol.frames.bounds import MOST_CACHE_BYTES
from evaluator.protocol.submission_files import names_variables

_FOLDER = "triton-cache"
_EXTENSIONS = "triton._C"
_GROUP = "__grp__"
_MOST_RAW_BYTES = 64 << 20
_MOST_KERNELS, _MOST_NAME, _MOST = 64, 1024, 1 << 31
_BYTES_PER_SPILL = 4
"""Triton's `n_spills` is a kernel's local memory per thread, divided by 4."""


class _Packed(msgspec.Struct):
    """Files of a cache by relative path; the groups among them name absolute paths below `root`."""

    root: str
    files: dict[str, bytes]


def forget_import(source: str) -> None:
    """Let a submission that names Triton's variables import Triton anew: the fork server may have imported Triton.

    Triton's extension modules stay loaded.
    """
    if names_variables(source):
        for name in [name for name in sys.modules if name.partition(".")[0] == "triton" and _EXTENSIONS not in name]:
            del sys.modules[name]


def use_folder(private: Path, cache: bytes) -> None:
    """Give Triton a cache folder in the runner's private folder, with the content packed by an earlier runner."""
    folder = private / _FOLDER
    os.environ["TRITON_CACHE_DIR"] = str(folder)
    os.environ["TRITON_HOME"] = str(private)  # In the fork server, Triton took the home folder from there.
    os.environ["TRITON_CACHE_AUTOTUNING"] = "1"
    if (driver := _driver_folder()) is not None:
        os.environ.setdefault("TRITON_LIBCUDA_PATH", driver)
    if not cache:
        return
    packed = msgspec.msgpack.decode(zlib.decompress(cache), type=_Packed)
    for name, content in packed.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # A group lists members by absolute path, and the folder has changed.
        group = path.name.startswith(_GROUP)
        path.write_bytes(content.replace(packed.root.encode(), str(folder).encode()) if group else content)


def _driver_folder() -> str | None:
    """Return the folder of the CUDA driver in this process. ldconfig, which Triton asks, may not list the folder."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    return next((str(Path(line.split()[-1]).parent) for line in maps.splitlines() if "/libcuda.so" in line), None)


def compiled_kernels(private: Path) -> CompiledKernels:
    """Return the kernels of this process, most registers first, and the content of its cache folder."""
    kernels = sorted(_loaded(), key=lambda kernel: (-kernel.registers, kernel.name))
    return CompiledKernels(cache=_packed(private / _FOLDER), kernels=kernels[:_MOST_KERNELS])


def _packed(folder: Path) -> bytes:
    """Return the files of a cache folder, compressed; nothing if there are too many bytes."""
    files: dict[str, bytes] = {}
    left_bytes = _MOST_RAW_BYTES
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            left_bytes -= path.stat().st_size
            if left_bytes < 0:
                return b""
            files[str(path.relative_to(folder))] = path.read_bytes()
    packed = zlib.compress(msgspec.msgpack.encode(_Packed(str(folder), files)), level=1) if files else b""
    return packed if len(packed) <= MOST_CACHE_BYTES else b""


def _loaded() -> Iterator[CompiledKernel]:
    """Yield the kernels that Triton has loaded onto the GPU."""
    kind = getattr(sys.modules.get("triton.compiler.compiler"), "CompiledKernel", None)
    kernels: list[Any] = [] if kind is None else [value for value in gc.get_objects() if type(value) is kind]
    for kernel in kernels:
        registers, spills = getattr(kernel, "n_regs", None), getattr(kernel, "n_spills", None)
        shared = getattr(getattr(kernel, "metadata", None), "shared", None)
        if isinstance(registers, int) and isinstance(spills, int) and isinstance(shared, int):
            yield CompiledKernel(
                name=str(kernel.name)[:_MOST_NAME],
                registers=_bounded(registers),
                local_bytes=_bounded(spills * _BYTES_PER_SPILL),
                shared_bytes=_bounded(shared),
            )


def _bounded(number: int) -> int:
    return min(max(number, 0), _MOST)


_MOST_SENT_NAME, _MOST_REASON, _LAST_PLACE = 1024, 8192, 1 << 22
_MOST_CAUSES = 32
_FAR_BELOW = 64
"""Lines of decorators above a kernel's `def`."""
_COMPILER, _LAUNCHER = "/triton/compiler/compiler.py", "/triton/runtime/jit.py"
_AT_RUN_TIME = (AssertionError, MemoryError, ArithmeticError, IndexError)
"""Exceptions of an interpreted kernel that depend on values, or on memory: no compiler finds these."""
_OF_PTXAS = (": error", "error   :", "fatal   :")
_IN_OUTPUT = "; the compiler's own messages are in the printed output"


def refused_kernel(error: BaseException, path: str) -> RefusedKernel | None:
    """Return the kernel refused by Triton's compiler; None for any other exception. `path` is the submission's file."""
    try:
        return _refused(error, path)
    except Exception:  # noqa: BLE001 - an exception of the submission's own class may have any attributes
        return None


def interpreted_cause(error: BaseException) -> BaseException:
    """Return the exception inside an interpreted kernel; any other exception unchanged.

    Triton's interpreter wraps a kernel's exception, and so hides the line of the kernel.
    """
    wrapper = getattr(sys.modules.get("triton.runtime.errors"), "InterpreterError", None)
    for _ in range(_MOST_CAUSES):
        if wrapper is None or not isinstance(error, wrapper) or error.__cause__ is None:
            break
        error = error.__cause__
    return error


def _refused(error: BaseException, path: str) -> RefusedKernel | None:
    compiler, runtime = sys.modules.get("triton.compiler.errors"), sys.modules.get("triton.runtime.errors")
    if compiler is None or runtime is None:
        return None
    causes = list(_causes(error))
    # A kernel that calls another kernel has an error of each; the innermost holds the reason.
    compilation_errors = [cause for cause in causes if isinstance(cause, compiler.CompilationError)]
    if compilation_errors:
        return _in_source(compilation_errors[-1], path)
    of_backend = (runtime.OutOfResources, getattr(runtime, "PTXASError", runtime.OutOfResources))
    for cause in causes:
        if isinstance(cause, of_backend) or _is_inside_compiler(cause):
            return _in_backend(cause, path)
    inside = interpreted_cause(error)
    return None if inside is error or isinstance(inside, _AT_RUN_TIME) else _in_interpreter(inside, path)


def _causes(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if current is None:
            return
        yield current
        current = current.__cause__


def _in_source(error: Any, path: str) -> RefusedKernel:
    """Return an error of Triton's front end, whose position is relative to the kernel's `def`."""
    source, node = str(error.src or ""), error.node
    start, indent = _start_of(source, path)
    row, offset = int(getattr(node, "lineno", 0)), int(getattr(node, "col_offset", -1))
    line = start + row if start and row else start + 1 if start is not None else 0
    column = 0
    lines = source.split("\n")
    if start is not None and 1 <= row <= len(lines) and offset >= 0:
        column = indent + len(lines[row - 1].encode()[:offset].decode(errors="ignore")) + 1
    reason = error.error_message
    if not reason:
        cause = error.__cause__
        reason = str(error) if cause is None else f"{type(cause).__name__}: {cause}"
    name = source.partition("def ")[2].partition("(")[0].strip()
    return _frame(name, str(reason), line, column)


def _start_of(source: str, path: str) -> tuple[int | None, int]:
    """Return the number of the submission's lines above a kernel's text, and the indentation of its `def`."""
    lines = linecache.getlines(path)
    stripped = [line.strip() for line in lines]
    kernel_lines = [line.strip() for line in source.rstrip().split("\n")]
    for start in range(len(stripped) - len(kernel_lines) + 1):
        if stripped[start] == kernel_lines[0] and stripped[start : start + len(kernel_lines)] == kernel_lines:
            return start, len(lines[start]) - len(lines[start].lstrip())
    return None, 0


def _is_inside_compiler(error: BaseException) -> bool:
    return any(
        frame.f_code.co_filename.endswith(_COMPILER) and frame.f_code.co_name == "compile"
        for frame, _ in traceback.walk_tb(error.__traceback__)
    )


def _in_backend(error: BaseException, path: str) -> RefusedKernel:
    """Return an error of the passes, of LLVM or of ptxas. Its position is the kernel's `def`."""
    message = str(error)
    ptxas_lines = [line.strip() for line in message.splitlines() if any(mark in line for mark in _OF_PTXAS)]
    if ptxas_lines:
        reason = "\n".join(ptxas_lines)
    else:
        reason = f"{type(error).__name__}: {message}" + (_IN_OUTPUT if "PassManager" in message else "")
    name, line = _launched(error, path)
    return _frame(name, reason, line, 0)


def _in_interpreter(error: BaseException, path: str) -> RefusedKernel:
    """Return an exception of an interpreted kernel, with the innermost line of the submission.

    The compiler finds most of these while it reads the kernel: an unknown function, a size that is no constant.
    """
    frames = [
        (frame, line) for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == path
    ]
    name = frames[0][0].f_code.co_name if frames else ""
    return _frame(name, f"{type(error).__name__}: {error}", frames[-1][1] if frames else 0, 0)


def _launched(error: BaseException, path: str) -> tuple[str, int]:
    """Return the name of the launched kernel, and the line of its `def` in the submission; 0 if elsewhere."""
    name, line = "", 0
    for frame, _ in traceback.walk_tb(error.__traceback__):
        kernel = frame.f_locals.get("self") if frame.f_code.co_filename.endswith(_LAUNCHER) else None
        code = getattr(getattr(kernel, "fn", None), "__code__", None)
        if code is not None:
            name = str(code.co_name)
            line = _line_of_def(code.co_firstlineno, path) if code.co_filename == path else 0
    return name, line


def _line_of_def(first: int, path: str) -> int:
    """Return the line of the `def` below the decorators that begin at line `first`."""
    lines = linecache.getlines(path)[first - 1 : first - 1 + _FAR_BELOW]
    return next((first + n for n, line in enumerate(lines) if line.lstrip().startswith("def ")), first)


def _frame(name: str, reason: str, line: int, column: int) -> RefusedKernel:
    def sent(text: str, most: int) -> str:
        return text.encode(errors="replace").decode()[:most]

    return RefusedKernel(
        kernel=sent(name, _MOST_SENT_NAME),
        reason=sent(reason, _MOST_REASON),
        line=min(max(line, 0), _LAST_PLACE),
        column=min(max(column, 0), _LAST_PLACE),
    )
