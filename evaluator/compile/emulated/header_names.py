"""Names in PyTorch's headers, and errors beyond the reach of headers.

After a failure with the light headers, all of PyTorch's headers might help, but parsing takes ten times as long. The
preprocessed headers contain every declared name and every macro. An unknown name outside of this set stays unknown.
"""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from evaluator.cache.build_cache import BuildCache
from evaluator.compile.emulated.precompiled_headers import general_flags, is_clang
from evaluator.compile.extension.builder import LIMITS, RunTool, work_folder, write_files
from evaluator.emulator.frontend.build_ladder import StepName
from evaluator.protocol.frames import BuildRequest
from evaluator.records import Diagnostic
from evaluator.toolchain import host_compiler
from evaluator.toolchain.flags import words

_TIMEOUT_S = 120.0
_MOST_BYTES = 256 << 20
_LIGHTER = (StepName.BOUND, StepName.LIGHT)
_UNIT, _OUTPUT = ".names.cpp", ".names.i"
_NAME = re.compile(r"[A-Za-z_]\w*")
_UNKNOWN = re.compile(
    r"[\u2018'](?P<name>\w+)[\u2019'] (?:was not declared in this scope|has not been declared|does not name a type"
    r"|is not a member of)|has no member named [\u2018'](?P<member>\w+)[\u2019']"
)
_QUOTED = re.compile(r"[\u2018'][^\u2019']*[\u2019']")
_COMMENT = re.compile(r"/\*.*?\*/|//.*")
_CONDITION = re.compile(r"^[ \t]*#[ \t]*(?:el)?if.*$", re.MULTILINE)
_MACRO_FLAG = re.compile(r"-[DU]")


_LANGUAGE = re.compile(
    r"expected |could not convert|cannot convert|invalid conversion|too (?:few|many) arguments to function"
    r"|invalid operands of types|lvalue required|assignment of read-only|invalid type argument"
)
"""Errors about complete types, and about functions declared by the light headers with all overloads."""


class HeaderNames(NamedTuple):
    """Names in PyTorch's headers, and names missing from the lighter headers of a step."""

    known: frozenset[str]
    lacking: dict[StepName, frozenset[str]]


def header_names(run_tool: RunTool, cache: BuildCache) -> HeaderNames | None:
    """Return the names, read by the compiler once for each combination of torch, compiler and emulator.

    None for clang, with other messages, and if the preprocessor fails.
    """
    if is_clang():
        return None
    commands = {step: general_flags(step) for step in (StepName.FULL, *_LIGHTER)}
    key = hashlib.sha256(
        msgspec.json.encode(["names", list(commands.values()), sorted(host_compiler.fingerprint().items())])
    ).hexdigest()
    if (entry := cache.parts.get(key)) is not None:
        return msgspec.json.decode(entry.library, type=HeaderNames)
    found = {step: _names(run_tool, argv, files) for step, (argv, files) in commands.items()}
    if not all(found.values()):
        return None
    known = found[StepName.FULL]
    names = HeaderNames(known, {step: known - found[step] for step in _LIGHTER})
    cache.parts.put(key, msgspec.json.encode(names), log="", wall_s=0.0)
    return names


def final_by_names(
    found: Sequence[Diagnostic], request: BuildRequest, texts: Sequence[str], names: HeaderNames, step: StepName
) -> list[Diagnostic]:
    """Return the errors of a lighter step, all beyond the reach of headers; empty if a header may mend any error.

    A single mendable error explains other errors: without the type of a declaration, the declared name is unknown too.
    Only an error in a line of the submission is certain: the step without pybind11 has generated lines.
    """
    if step not in names.lacking:
        return []
    lacking = names.lacking[step]
    if any(_MACRO_FLAG.match(flag) for flag in words([*request.extra_cflags, *request.extra_cuda_cflags])):
        return []  # a macro may add names to the headers
    conditions = " ".join(line for text in texts for line in _CONDITION.findall(text))
    if "__has_include" in conditions or lacking.intersection(_NAME.findall(conditions)):
        return []  # another part of the text may count with all headers
    errors = [entry for entry in found if entry.severity in {"error", "fatal error"}]
    return errors if all(_is_certain(entry, names.known, lacking) for entry in errors) else []


def _is_certain(entry: Diagnostic, known: frozenset[str], lacking: frozenset[str]) -> bool:
    quoted = _QUOTED.findall(entry.message)
    said = _NAME.findall("\n".join([_COMMENT.sub(" ", entry.source_line), *quoted]))
    if entry.submission_line is None or lacking.intersection(said):
        return False
    if (match := _UNKNOWN.search(entry.message)) is not None:
        return (match["name"] or match["member"]) not in known
    return _LANGUAGE.match(entry.message) is not None


def _names(run_tool: RunTool, argv: Sequence[str], files: dict[str, str]) -> frozenset[str]:
    with work_folder() as work:
        write_files(work, {**files, _UNIT: "#include <torch/extension.h>\n"})
        preprocess = [*argv, "-E", "-dD", "-P", _UNIT, "-o", _OUTPUT]
        result = run_tool(preprocess, work=work, limits=LIMITS, timeout_s=_TIMEOUT_S)
        return frozenset(_NAME.findall(_text(work / _OUTPUT))) if result.ok else frozenset()


def _text(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_MOST_BYTES).decode("utf-8", "replace")
