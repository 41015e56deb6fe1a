"""Analysis of one submission: findings about Python and embedded C++, languages, and predicted builds."""

import warnings
from collections.abc import Sequence
from pathlib import PurePosixPath

import msgspec

from evaluator.lint import cpp_calls, launches, library, prompt_injection, side_effects
from evaluator.lint.embedded import file_pieces, pieces
from evaluator.lint.languages import languages
from evaluator.lint.messages import ANALYSIS, MAX_MESSAGE, Look, Looked, Remark, thinned
from evaluator.lint.predicted_builds import predicted_builds
from evaluator.lint.reachable import Module, in_forward, other_entry, take_apart
from evaluator.protocol.frames import BuildRequest, SourceFile
from evaluator.protocol.frames.bounds import MAX_FRAME_BYTES
from evaluator.protocol.frames.oversize import unsendable_request
from evaluator.protocol.parsed_python import parsed_python
from evaluator.protocol.submission_files import HEADER_SUFFIXES, SubmissionFile, cpp_files, python_files
from evaluator.submission.model_new import entries_of

_MAX_BUILDS_BYTES = MAX_FRAME_BYTES // 2


def look(source: str, entries: Sequence[str] = entries_of(None)) -> Looked:
    """Analyse `source` and list the remarks. Invalid Python is left to the build, which reports the position.

    Time, memory and recursion depth are unbounded. The caller sets limits and expects the process to die at them.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parsed = parsed_python(source)
    except (SyntaxError, ValueError):
        return Looked(thinned(list(prompt_injection.prompt_injection(source, [], [], python_files(source)))))
    except (RecursionError, MemoryError):
        return Looked([], f"it is nested too deeply for Python's parser, or too large: {len(source)} characters")
    try:
        module = take_apart(parsed.tree, entries)
        noticed = thinned(_remarks(source, module, parsed.invalid))
        toolchains = languages(module, source)
    except (RecursionError, MemoryError) as error:
        return Looked([], f"{type(error).__name__} while looking at it"[:MAX_MESSAGE])
    return Looked(noticed, builds=_builds(module, source), toolchains=toolchains)


def _answer(question: Look) -> Looked:
    return look(question.submission, question.entries)


run = ANALYSIS.answered_by(_answer)


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
        *side_effects.surroundings(module),
        *side_effects.patches(module, bodies),
        *cpp_calls.cpp_rules(cpp_pieces),
        *launches.never_launched(module.nodes, cpp_pieces),
        *launches.decorated_never_launched(module.nodes, module.names),
        *prompt_injection.prompt_injection(source, module.nodes, cpp_pieces, invalid),
    ]
