"""Interface of a language of kernels: recognition, devices, installation, and the meaning of failures."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

from evaluator.records import DeviceKind, Toolchain


class Mentions(NamedTuple):
    """Names in a submission, as evidence of its language.

    `dotted` are full names of imported and used objects, `includes` the paths of included C++ headers. `has_kernel`
    states whether the text holds CUDA code.
    """

    dotted: frozenset[str]
    includes: frozenset[str]
    has_kernel: bool


class Package(NamedTuple):
    """Installed language: version, and include folders of C++ headers."""

    version: str
    include_paths: tuple[Path, ...] = ()


class Installation(NamedTuple):
    """Search for a language on the machine, and the command for the installation."""

    find: Callable[[], Package | None]
    command: str


class Language(NamedTuple):
    """Language of kernels.

    `is_in` recognizes the language in a submission. `installation` is None for the languages of the C++ and CUDA
    compilers. `packages` are the root packages in imports. `code` are all functions of the language, as prefixes of
    `module.function`; `compiler` and `launcher` those for compiling and launching a kernel.

    Languages with `marks` compile kernels in the runner, at the first call. A text names such a language by a match of
    one of these regular expressions. `decorators` are the full names of decorators of kernels. `kernels` returns the
    names of the kernels in a text, for a language whose launches a runner can leave out.
    """

    toolchain: Toolchain
    title: str
    is_in: Callable[[Mentions], bool]
    runs_on: frozenset[DeviceKind]
    installation: Installation | None = None
    packages: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    compiler: tuple[str, ...] = ()
    launcher: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    decorators: tuple[str, ...] = ()
    kernels: Callable[[str], list[str]] | None = None


def names(*prefixes: str) -> Callable[[Mentions], bool]:
    """Return a recognizer for Python names with any of `prefixes`.

    >>> names("tilelang")(Mentions(frozenset({"tilelang.language"}), frozenset(), has_kernel=False))
    True
    """
    return lambda mentions: any(begins_with(name, prefixes) for name in mentions.dotted)


def includes(*prefixes: str) -> Callable[[Mentions], bool]:
    """Return a recognizer for C++ headers with any of `prefixes` in front of the path."""
    return lambda mentions: any(path.startswith(prefixes) for path in mentions.includes)


def begins_with(name: str, prefixes: Collection[str]) -> bool:
    """Return whether a dotted name equals any of `prefixes`, or lies below.

    >>> begins_with("cupy.RawKernel", ("cupy",)), begins_with("cupyx", ("cupy",))
    (True, False)
    """
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes)
