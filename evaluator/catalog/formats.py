"""The tables `[formats.inputs]` and `[formats.outputs]` of a problem.toml."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evaluator.catalog.reference import ParsedReference
from evaluator.catalog.text import did_you_mean, one_of
from evaluator.errors import ProblemError
from evaluator.records import ElementFormat, Formats, OutputFormat

_BLOCKS = (ElementFormat.MXFP4, ElementFormat.NVFP4)
_PATH = re.compile(r"output(\[\d+\]|\.\w+)*")
_INPUTS = [form.value for form in ElementFormat if form is not ElementFormat.E8M0]
_OUTPUTS = [form.value for form in ElementFormat if form not in _BLOCKS]
_MOST_FLIPS = 1 / 16


def checked_formats(
    inputs: Mapping[str, Any], outputs: Mapping[str, Any], reference: ParsedReference, path: Path
) -> Formats:
    """Return the declared formats.

    Raises:
        ProblemError: a name or a format is unknown, a block format lacks the path of its scales, or too many elements
            may flip.
    """
    for name, value in inputs.items():
        label = f"{path}: formats.inputs.{name}"
        if reference.forward is not None and name not in reference.forward:
            message = f"{label}: Model.forward has no parameter {name}; {one_of(reference.forward)}"
            raise ProblemError(message, hint=did_you_mean(name, reference.forward))
        if value not in _INPUTS:
            raise ProblemError(f"{label}: got {value!r}; {one_of(_INPUTS)}")
    return Formats(
        inputs={name: ElementFormat(value) for name, value in inputs.items()},
        outputs={name: _output(f"{path}: formats.outputs.{name!r}", name, value) for name, value in outputs.items()},
    )


def _output(label: str, name: str, value: Any) -> OutputFormat:
    if not _is_path(name):
        hint = 'the form is "output", "output[0]" or "output.key"'
        raise ProblemError(f"{label}: not the path of an output", hint=hint)
    match value:
        case str() if value in _OUTPUTS:
            return OutputFormat(ElementFormat(value))
        case {"format": form, "scales": scales, **rest} if form in _BLOCKS and not rest:
            if _is_path(scales) and scales != name:
                return OutputFormat(ElementFormat(form), scales)
        case {"flips": float(flips), **rest} if 0 < flips <= _MOST_FLIPS and not rest:
            return OutputFormat(flips=flips)
    message = (
        f"{label}: got {value!r}; {one_of(_OUTPUTS)}, for {' or '.join(_BLOCKS)} a table with the path of the scales, "
        "or the share of elements that may flip, at most 1/16"
    )
    raise ProblemError(message, hint='for example { format = "mxfp4", scales = "output[1]" } or { flips = 1e-5 }')


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and _PATH.fullmatch(value) is not None
