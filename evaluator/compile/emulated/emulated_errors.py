"""Errors of builds for the emulator: violations of device rules, found by nvcc, and messages in the submission's words.

g++ compiles kernels as host functions, so a kernel could call any host function. `nvcc -ptx` on the kernels alone takes
half a second. An nvcc error counts only as a violation of a device rule. Any other error may result from the omitted
code, which includes everything that refers to PyTorch.
"""

import re
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from evaluator.compile.extension.builder import SUBMISSION_LIMITS, RunTool, work_folder, write_files
from evaluator.emulator.frontend.rewriter import OWN_EMU
from evaluator.emulator.frontend.unsupported_features import suggestion
from evaluator.errors import ToolchainMissing
from evaluator.protocol.frames import SourceFile
from evaluator.records import Diagnostic
from evaluator.toolchain import nvcc
from evaluator.toolchain.diagnostics import parse
from evaluator.toolchain.host_compiler import language_standard
from evaluator.toolchain.nvcc_flags import words

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


_QUOTED = r"(?<=[\u2018'])%s(?=[\u2019'])"
_LAUNCH = re.compile(r"(?P<first>[A-Za-z_]\w*)(?:::\w+|<[^<>;{}]{0,200}>)*\s*<<<")
_SUGGESTION = re.compile(r"; did you mean .*")
_MOST_LINES = 20
_CONFIG = re.compile(r"[\u2018']emu::Config::Config\((?P<types>.*)\)[\u2019']")
_NOT_CONSTANT = re.compile(r"constant[ -]expression|call to .shared<|array bound|variable[ -]")
_CONSTANT_EXTENT = (
    "the extent of a __shared__ array must be a constant; for a size given by the launch, write "
    "extern __shared__ float name[]; and pass the bytes as third argument of <<<>>>"
)
_DEVICE_NAMES = {"is_cpu": ("is_cuda",), "kCPU": ("kCUDA",), "CPU": ("CUDA",), "is_meta": ("is_cpu", "get_device")}
"""Words of rewritten code, and the words replaced by `emulator/frontend/rewriter.py`."""


def in_original_words(error: Diagnostic, text: str) -> Diagnostic:
    """Return an error in the file `text`, without words that only the rewritten text has, and with the name meant."""
    message = error.message
    if (config := _CONFIG.search(message)) is not None:
        message = f"no launch <<<grid, block, bytes, stream>>> takes arguments of the types ({config['types']})"
    if re.search(_QUOTED % "emu", message) is not None:
        following = "\n".join(text.split("\n")[max(error.line - 1, 0) :][:_MOST_LINES])
        launch = _LAUNCH.search(following)
        message = re.sub(_QUOTED % "emu", "<<<" if launch is None else launch["first"], message)
    if "__shared__" in error.source_line and _NOT_CONSTANT.search(message) is not None:
        message = _CONSTANT_EXTENT
    for word, originals in _DEVICE_NAMES.items():
        original = next((candidate for candidate in originals if candidate in error.source_line), None)
        if original is not None and not re.search(rf"\b{word}\b", error.source_line):
            message = re.sub(_QUOTED % word, original, message)
    if (suggested := suggestion(message)) is not None:
        message = f"{_SUGGESTION.sub('', message)}; did you mean \u2018{suggested}\u2019?"
    message = message.replace(OWN_EMU, "emu")
    return error if message == error.message else replace(error, message=message)
