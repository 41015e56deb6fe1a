"""Analysis of one submission: findings about Python and embedded C++, languages, and predicted builds."""

import ast
import warnings
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

import msgspec

from evaluator.languages.language import Mentions, included_headers, mentions_in_text
from evaluator.languages.registry import recognized
from evaluator.lint import launches, library, suspicions
from evaluator.lint.embedded import file_pieces, pieces, texts
from evaluator.lint.messages import ANALYSIS, MAX_MESSAGE, LintResult, Remark, thinned
from evaluator.lint.names import DottedNames
from evaluator.lint.predicted_builds import predicted_builds
from evaluator.lint.reachable import Module, in_forward, other_entry, take_apart
from evaluator.protocol.frames import BuildRequest, SourceFile
from evaluator.protocol.frames.bounds import MAX_FRAME_BYTES
from evaluator.protocol.frames.oversize import unsendable_request
from evaluator.protocol.submission_files import (
    HEADER_SUFFIXES,
    SubmissionFile,
    cpp_files,
    is_several,
    parsed_python,
    python_files,
)
from evaluator.records import Toolchain
from evaluator.submission.model_new import entries_of

_CUDA_FILES = (".cu", ".cuh")
_KERNEL = "__global__"


def languages(module: Module, source: str) -> list[Toolchain]:
    """Return all languages of a parsed submission. A file may contain several."""
    strings = [text for _, text in texts(module.nodes)]
    files = cpp_files(source)
    code = [*strings, *(file.text for file in files)]
    dotted = set(_dotted(module))
    if is_several(source):  # The manifest may ask for an extension.
        dotted |= {name for name in mentions_in_text(source).dotted if name.startswith("torch.utils.")}
    mentions = Mentions(
        dotted=frozenset(dotted),
        includes=frozenset().union(*map(included_headers, code)),
        has_kernel=any(_KERNEL in text for text in code)
        or any(text.endswith(_CUDA_FILES) for text in strings)
        or any(file.path.endswith(_CUDA_FILES) for file in files)
        or any(_passes_cuda(node) for node in module.nodes),
    )
    return recognized(mentions)


def _dotted(module: Module) -> Iterator[str]:
    """Yield the full names of imported objects, and of used objects of imported modules."""
    names: DottedNames = module.names
    yield from names.meanings
    for node in module.nodes:
        match node:
            case ast.Attribute():
                name = names.dotted(node)
                if name is not None and name.partition(".")[0] in names.sources:
                    yield name
            case ast.Call():  # `getattr` and `import_module` with literal names.
                if (name := names.dotted(node)) is not None:
                    yield name
            case _:
                continue


def _passes_cuda(node: ast.AST) -> bool:
    """Return whether a call passes CUDA sources, even with text from run time."""
    match node:
        case ast.keyword(arg="cuda_sources", value=ast.Constant(value=None | "")):
            return False
        case ast.keyword(arg="cuda_sources", value=ast.List(elts=[]) | ast.Tuple(elts=[])):
            return False
        case ast.keyword(arg="cuda_sources"):
            return True
        case _:
            return False


_MAX_BUILDS_BYTES = MAX_FRAME_BYTES // 2


def look(source: str, entries: Sequence[str] = entries_of(None)) -> LintResult:
    """Analyse `source` and list the remarks. Invalid Python is left to the build, which reports the position.

    Time, memory and recursion depth are unbounded. The caller sets limits and expects the process to die at them.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parsed = parsed_python(source)
    except (SyntaxError, ValueError):
        return LintResult(thinned(list(suspicions.prompt_injection(source, [], [], python_files(source)))))
    except (RecursionError, MemoryError):
        return LintResult([], f"it is nested too deeply for Python's parser, or too large: {len(source)} characters")
    try:
        module = take_apart(parsed.tree, entries)
        noticed = thinned(_remarks(source, module, parsed.invalid))
        toolchains = languages(module, source)
    except (RecursionError, MemoryError) as error:
        return LintResult([], f"{type(error).__name__} while looking at it"[:MAX_MESSAGE])
    return LintResult(noticed, builds=_builds(module, source), toolchains=toolchains)


run = ANALYSIS.answered_by(lambda question: look(question.submission, question.entries))


def _builds(module: Module, source: str) -> list[BuildRequest]:
    """Predict builds. A failure for a hostile text discards the prediction but keeps the remarks."""
    try:
        builds = predicted_builds(module.nodes, module.names, _headers(source))
        # Requests that the judge would refuse from a runner are not built ahead either.
        builds = [build for build in builds if unsendable_request(build) is None]
        return builds if len(msgspec.msgpack.encode(builds)) <= _MAX_BUILDS_BYTES else []
    except Exception:  # noqa: BLE001 - there is no list of what a hostile text may lead to
        return []


def _headers(source: str) -> list[SourceFile]:
    """Return the headers of a submission of several files, in a runner's order."""
    texts = {file.path: file.text for file in cpp_files(source) if PurePosixPath(file.path).suffix in HEADER_SUFFIXES}
    return [SourceFile(name=path, text=texts[path]) for path in sorted(texts, key=PurePosixPath)]


def _remarks(source: str, module: Module, invalid: list[SubmissionFile]) -> list[Remark]:
    bodies = in_forward(module)
    cpp_pieces = [*pieces(module.nodes, source), *file_pieces(source)]
    return [
        *other_entry(module),
        *library.library_calls(module, bodies),
        *library.fallbacks(module, bodies),
        *suspicions.surroundings(module),
        *suspicions.patches(module, bodies),
        *launches.cpp_rules(cpp_pieces),
        *launches.never_launched(module.nodes, cpp_pieces),
        *launches.decorated_never_launched(module.nodes, module.names),
        *suspicions.prompt_injection(source, module.nodes, cpp_pieces, invalid),
    ]
