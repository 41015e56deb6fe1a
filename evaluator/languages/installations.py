"""Search for installed languages: Python distributions, and folders of C++ headers."""

import importlib.metadata
import importlib.util
import os
import re
from collections.abc import Callable
from pathlib import Path

from evaluator.languages.language import Package

_OF_PARTS_ALONE = ("cuda",)
"""Packages without code of their own, for the parts of several distributions."""
_PARTS = ("MAJOR", "MINOR", "PATCH")
_RELEASE = re.compile(r"^#define \w{1,40}_(MAJOR|MINOR|PATCH) (\d{1,9})", re.MULTILINE)


def distribution(*candidates: str, package: str) -> Callable[[], Package | None]:
    """Return a search for the first installed distribution among `candidates`.

    `package` is imported by submissions, and must be importable. Wheels that lack another wheel, and `.pth` files
    without effect (`pip install --target`), leave a distribution without its package, or with an empty folder.
    """

    def find() -> Package | None:
        if not is_importable(package):
            return None
        versions = (_version(name) for name in candidates)
        return next((Package(version) for version in versions if version is not None), None)

    return find


def is_importable(package: str, *, with_code: bool = True) -> bool:
    """Return whether Python finds a root package, `with_code` of its own: an empty folder has none."""
    try:
        spec = importlib.util.find_spec(package)
    except ValueError:  # A module without a spec, such as `__main__`, is installed.
        return True
    return spec is not None and (not with_code or spec.origin is not None or package in _OF_PARTS_ALONE)


def headers(variable: str, header: str, *, folders: tuple[str, ...], package: str = "") -> Callable[[], Package | None]:
    """Return a search for C++ headers: in the folder of an environment variable, else in a Python package.

    The headers lie in `folders` below the variable's folder, or below `source` of the package. `header` must exist in
    the first folder.
    """

    def find() -> Package | None:
        for root in _roots(variable, package):
            if (root / folders[0] / header).is_file():
                paths = tuple(root / folder for folder in folders if (root / folder).is_dir())
                return Package(f"{_release(root / folders[0] / header)} in {paths[0]}", paths)
        return None

    return find


def _roots(variable: str, package: str) -> list[Path]:
    """Return the possible folders of the headers. A set variable excludes the package."""
    if chosen := os.environ.get(variable):
        return [Path(chosen).resolve()]
    spec = importlib.util.find_spec(package) if package else None
    return [] if spec is None or spec.origin is None else [Path(spec.origin).resolve().parent / "source"]


def _release(header: Path) -> str:
    """Return the version by macros of a header (`CUTLASS_MAJOR`); "headers" without the macros."""
    numbers = dict(_RELEASE.findall(header.read_text(encoding="utf-8", errors="replace")))
    return ".".join(numbers[part] for part in _PARTS) if numbers.keys() >= set(_PARTS) else "headers"


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
