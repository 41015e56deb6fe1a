"""The mistakes that are commonest with load_inline: what is bound, declared and defined does not fit together.

The compiler tells of them in lines that `load_inline` wrote, or the loader in mangled names. Here they are told by the
submission's own words, with the line to add. That a build failed is known: this only says why.
"""

import difflib
import re
from collections.abc import Sequence

from evaluator.build.definitions import declaration_of, defined_names, definition_of
from evaluator.build.sources import source_files
from evaluator.findings import Code, finding
from evaluator.protocol.frames import BuildRequest
from evaluator.protocol.frames.bounds import total_bytes
from evaluator.protocol.frames.oversize import text_bytes
from evaluator.records import Diagnostic, Finding

_NAME = re.compile(r"[A-Za-z_]\w{0,200}\Z")
_MODULE = re.compile(r"\bPYBIND11_MODULE\s{0,20}\(")
_OWN_INCLUDE = re.compile(r'#\s*include\s*"')
_TORCH_INCLUDE = re.compile(r"#\s*include\s*<(?:torch|ATen|c10)/")
_NO_TORCH = re.compile(
    r"\W(?:torch|at|c10)\W? (?:has not been declared|does not name a type)|\"torch\" is undefined"
    r"|name must be a namespace name"
)
_BOUND = re.compile(r"\bfunctions\s{0,20}=")
_UNDEFINED_SYMBOL = re.compile(r"undefined symbol: _Z(?:N\d+\w+?)?(?P<length>\d{1,3})(?P<rest>[A-Za-z_]\w*)")
_NO_INIT = re.compile(r"does not define module export function \(PyInit_")
_NO_CPP_SOURCES = re.compile(r"load_inline\(\) missing .*'cpp_sources'")
_CLOSE = 0.6
_MOST_BYTES, _MOST_FUNCTIONS = 256 << 10, 64
"""What is longer keeps the compiler's own words: a submission's text may be written to take the judge's time."""


def explained(failure: Finding, request: BuildRequest, found: Sequence[Diagnostic], submission: str) -> Finding:
    """Give a failure to compile in terms of what the submission bound, if that is what is wrong; else as it is."""
    if failure.code != Code.COMPILE_FAILED.value or failure.details.get("killed") or _is_long(request):
        return failure
    errors = [entry.message for entry in found if entry.severity == "error"]
    return (
        _two_modules(request, submission)
        or _not_declared(request, submission)
        or _defined_twice(request, errors, submission)
        or _no_header(request, errors, found)
        or failure
    )


def explained_load(kind: str, said: str, texts: Sequence[str], submission: str) -> Finding | None:
    """Say what Python's words on loading an extension, or on asking for one, mean; None for any others."""
    if kind == "TypeError" and _NO_CPP_SOURCES.search(said):
        names = _names_in(submission)
        lines = " ".join(made.declaration for name in names if (made := definition_of(name, [submission])))
        step = f"Hand in the declarations: cpp_sources={(lines or 'torch::Tensor f(torch::Tensor x);')!r}."
        return _finding("load_inline was called without cpp_sources, which declare what is bound", step, submission)
    if kind != "ImportError" or total_bytes(texts) > _MOST_BYTES:
        return None
    if _NO_INIT.search(said):
        names = defined_names(texts)
        step = f"Add functions={names[:4] or ['f']} to the call of load_inline."
        return _finding("the extension was built and binds nothing for Python", step, submission)
    if (symbol := _UNDEFINED_SYMBOL.search(said)) is None:
        return None
    name = symbol["rest"][: int(symbol["length"])]
    declared, defined = declaration_of(name, texts), definition_of(name, texts)
    if defined is None:
        return _finding(f"{name} is declared, and no source defines it", _meant(name, texts), submission, name)
    was = f": {declared.declaration}" if declared is not None else ""
    message = f"{name} is declared as no source defines it{was}"
    return _finding(message, f"Declare it as it is defined: {defined.declaration}", submission, name)


def _is_long(request: BuildRequest) -> bool:
    """Say whether looking for each function in all sources would take the judge long."""
    return text_bytes(request) > _MOST_BYTES or len(request.functions or {}) > _MOST_FUNCTIONS


def _two_modules(request: BuildRequest, submission: str) -> Finding | None:
    if request.functions is None or not any(_MODULE.search(text) for text in _texts(request)):
        return None
    message = "functions=[...] makes a module for Python, and the sources hold a PYBIND11_MODULE of their own"
    return _finding(
        message, "Leave out one of them: functions=, or the PYBIND11_MODULE.", submission, "PYBIND11_MODULE"
    )


def _not_declared(request: BuildRequest, submission: str) -> Finding | None:
    cpp = "\n".join(request.cpp_sources)
    if request.functions is None or request.files or _OWN_INCLUDE.search(cpp):
        return None
    for name in request.functions:
        if not _NAME.match(name) or re.search(rf"\b{re.escape(name)}\b", cpp):
            continue
        defined = definition_of(name, request.cuda_sources)
        if defined is None:
            message = f"functions=[...] names {name}, and no source defines it"
            return _finding(message, _meant(name, _texts(request)), submission, name)
        if defined.is_kernel:
            message = f"functions=[...] names {name}, which is a kernel: Python cannot call it"
            step = "Write a C++ function that launches it (kernel<<<blocks, threads>>>(...)), and name that."
            return _finding(message, step, submission, name)
        message = f"functions=[...] names {name}, and cpp_sources does not declare it"
        return _finding(message, f"Add to cpp_sources: {defined.declaration}", submission, name)
    return None


def _defined_twice(request: BuildRequest, errors: Sequence[str], submission: str) -> Finding | None:
    if not any("multiple definition of" in error for error in errors):
        return None
    for name in defined_names(request.cpp_sources):
        if (other := definition_of(name, request.cuda_sources)) is not None:
            message = f"{name} is defined in cpp_sources and again in cuda_sources"
            step = f"Keep one body, in cuda_sources, and in cpp_sources the line: {other.declaration}"
            return _finding(message, step, submission, name)
    return None


def _no_header(request: BuildRequest, errors: Sequence[str], found: Sequence[Diagnostic]) -> Finding | None:
    if not any(_NO_TORCH.search(error) for error in errors):
        return None
    for file in source_files(request):
        if "torch::" in file.text and not _TORCH_INCLUDE.search(file.text):
            line = next((entry.submission_line for entry in found if entry.file == file.name), None)
            message = f"{file.name} uses PyTorch and does not include its header"
            step = "Add to its beginning: #include <torch/extension.h>"
            return finding(Code.BINDING, message, line=line, next_step=step)
    return None


def _texts(request: BuildRequest) -> list[str]:
    return [*request.cpp_sources, *request.cuda_sources, *(file.text for file in request.files)]


def _meant(name: str, texts: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, defined_names(texts), 1, _CLOSE)
    return f"Define it; or did you mean {near[0]}?" if near else "Define it in one of the sources, or leave it out."


def _names_in(submission: str) -> list[str]:
    """Give the names in the first `functions=[...]` of a submission's text."""
    bound = _BOUND.search(submission)
    listed = submission[bound.end() :][:400].partition("]")[0] if bound is not None else ""
    return re.findall(r"['\"]([A-Za-z_]\w{0,200})['\"]", listed)


def _finding(message: str, step: str, submission: str, name: str | None = None) -> Finding:
    return finding(Code.BINDING, message, line=_line(submission, name), next_step=step)


def _line(submission: str, name: str | None) -> int | None:
    """Find where `functions=` names it, else where it stands first, else where anything is bound."""
    for bound in _BOUND.finditer(submission):
        place = submission.find(name or "", bound.end(), bound.end() + 400)
        if place >= 0:
            return submission.count("\n", 0, bound.start()) + 1
    place = submission.find(name) if name is not None else submission.find("load_inline(")
    return submission.count("\n", 0, place) + 1 if place >= 0 else None
