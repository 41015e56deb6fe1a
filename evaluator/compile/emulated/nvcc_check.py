"""Check of emulated kernels by nvcc, if installed: violations of device rules that g++ cannot see.

g++ compiles kernels as host functions, so a kernel could call any host function. `nvcc -ptx` on the kernels alone takes
half a second. An nvcc error counts only as a violation of a device rule. Any other error may result from the omitted
code, which includes everything that refers to PyTorch.
"""

import re
from collections.abc import Mapping, Sequence

from evaluator.compile.extension.builder import SUBMISSION_LIMITS, RunTool, work_folder, write_files
from evaluator.errors import ToolchainMissing
from evaluator.protocol.frames import SourceFile
from evaluator.records import Diagnostic
from evaluator.toolchain import nvcc
from evaluator.toolchain.diagnostics import parse
from evaluator.toolchain.flags import words
from evaluator.toolchain.host_compiler import language_standard

_ARCHITECTURE = "sm_90"
"""Architecture reported by the emulator."""
_TIMEOUT_S = 60.0
_DEVICE_RULE = re.compile(
    r"calling a (?:constexpr )?__host__ function|is undefined in device code|device code does not support"
    r"|a __global__ function (?:must have|cannot have|call must be)|annotation on lambda requires|extended lambda"
    r"|expression must have a constant value|thread_local specifier for variable declarations in device code"
)
_PRELUDE = "".join(
    f"#include <{name}>\n"
    for name in ("algorithm", "cfloat", "climits", "cmath", "cstdint", "cstdio", "limits", "type_traits", "utility")
)
"""Standard headers normally included by the omitted PyTorch headers."""
_OWN_FLAG = re.compile(r"-D.+|--?(?:expt-)?(?:extended-lambda|relaxed-constexpr)")


def nvcc_version() -> str | None:
    """Return nvcc's version; None without nvcc."""
    try:
        return nvcc.nvcc().version
    except ToolchainMissing:
        return None


def device_errors(
    files: Sequence[SourceFile],
    kernels: Mapping[str, str],
    flags: Sequence[str],
    run_tool: RunTool,
    submission: str,
    timeout_s: float = _TIMEOUT_S,
) -> list[Diagnostic]:
    """Return nvcc's errors about the kernels in `files`; empty without nvcc, or in doubtful cases.

    `kernels` maps file names to the device parts that compile without PyTorch (`cuda_source/device_code.py`).
    `flags` are the submission's nvcc flags; only macros and language extensions are used. `timeout_s` limits each file.
    """
    texts = {file.name: file.text for file in files}
    if not kernels or nvcc_version() is None:
        return []
    kernel_errors: list[Diagnostic] = []
    for name, text in kernels.items():
        with work_folder() as work:
            host_files = {file_name: texts[file_name] for file_name in texts.keys() - kernels.keys()}
            write_files(work, {**host_files, name: f'{_PRELUDE}#line 1 "{name}"\n{text}'})
            argv = [nvcc.nvcc().path, *_flags(words(flags)), name, "-o", "kernels.ptx"]
            result = run_tool(argv, work=work, limits=SUBMISSION_LIMITS, timeout_s=min(timeout_s, _TIMEOUT_S))
        if result.exit_code is not None and not result.ok:
            errors = [entry for entry in parse(result.output, texts, submission) if entry.severity == "error"]
            # One error from omitted code makes all errors doubtful.
            if all(entry.file == name and _DEVICE_RULE.search(entry.message) for entry in errors):
                kernel_errors += errors
    return kernel_errors


def _flags(cuda_cflags: Sequence[str]) -> list[str]:
    return [
        "-ptx",
        f"-arch={_ARCHITECTURE}",
        f"-std={language_standard()}",
        *nvcc.PYTORCH_NVCC_FLAGS,
        *(flag for flag in cuda_cflags if _OWN_FLAG.fullmatch(flag)),
    ]
