"""Compiler messages about rewritten code, in the words of the submission: kernels, launches, device names."""

import re

from msgspec.structs import replace

from evaluator.emulator.frontend.rewriter import OWN_EMU
from evaluator.emulator.frontend.unsupported_features import suggestion
from evaluator.records import Diagnostic

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
