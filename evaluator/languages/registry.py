"""Searches among all languages."""

from collections.abc import Sequence

from evaluator.languages.by_text import MOST_KERNELS
from evaluator.languages.language import Language, Mentions, Package, begins_with
from evaluator.languages.table import LANGUAGES
from evaluator.records import Toolchain

MARKS = "|".join(mark for language in LANGUAGES for mark in language.marks)
"""Regular expression for the names of all languages with kernels compiled in the runner, at the first call."""
PACKAGES = tuple(package for language in LANGUAGES for package in language.packages)
DECORATORS = frozenset(decorator for language in LANGUAGES for decorator in language.decorators)


def recognized(mentions: Mentions) -> list[Toolchain]:
    """Return the languages by the names; none for plain PyTorch.

    >>> recognized(Mentions(frozenset({"triton.language"}), frozenset(), has_kernel=False))
    [<Toolchain.TRITON: 'triton'>]
    """
    return [language.toolchain for language in LANGUAGES if language.is_in(mentions)]


def jit_kernels(source: str) -> list[str]:
    """Return the names of the kernels in the text that a runner compiles and can leave out (Triton, NVRTC)."""
    readers = (language.kernels for language in LANGUAGES if language.kernels is not None)
    return sorted({name for kernels in readers for name in kernels(source)})[:MOST_KERNELS]


def language_of_package(package: str) -> Language | None:
    """Return the language of a root package."""
    return next((language for language in LANGUAGES if package in language.packages), None)


def found_installation(language: Language) -> Package | None:
    """Return the installation of a language; None if missing, and for the languages of the C++ and CUDA compilers."""
    return None if language.installation is None else language.installation.find()


def install_command(language: Language) -> str:
    """Return the command for the installation of a language."""
    return "warpgrade doctor" if language.installation is None else language.installation.command


def failed_language(frames: Sequence[str]) -> Language | None:
    """Return the first language on the stack of an exception; `frames` are functions, outermost first."""
    for frame in frames:
        for language in LANGUAGES:
            if begins_with(frame, language.code):
                return language
    return None


def failed_at_import(language: Language, frames: Sequence[str]) -> bool:
    """Return whether the submission imported the language, and the import itself failed.

    >>> from evaluator.languages.table import TILELANG
    >>> failed_at_import(TILELANG, ["submission.<module>", "tilelang.<module>", "z3.z3core.<module>"])
    True
    >>> failed_at_import(TILELANG, ["submission.<module>", "tilelang.jit.jit", "tilelang.engine.<module>"])
    False
    """
    first = next((frame for frame in frames if begins_with(frame, language.code)), "")
    return first.endswith(".<module>")


def failed_in_compiler(language: Language, frames: Sequence[str]) -> bool:
    """Return whether an exception came from the language's compiler, and not from a launch."""
    launched = any(begins_with(frame, language.launcher) for frame in frames)
    return not launched and any(begins_with(frame, language.compiler) for frame in frames)
