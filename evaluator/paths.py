"""Locations: shipped data, beside the code in a wheel or at the top of a checkout, and the user's cache."""

import os
from pathlib import Path
from typing import Literal

from evaluator.errors import InfraError

DataName = Literal["problems", "solutions", "schemas"]

_PACKAGE = Path(__file__).resolve().parent


def data_dir(name: DataName, *, package: Path = _PACKAGE) -> Path:
    """Return the folder of the shipped `problems`, `solutions` or `schemas`.

    Args:
        name: the kind of data.
        package: the folder of the package `evaluator`; by default the running package.

    Raises:
        InfraError: the installation lacks the folder.
    """
    installed = package / "_data" / name
    if installed.is_dir():
        return installed
    top = package.parent
    # Without this file, a foreign `problems` package in site-packages would be mistaken for Warpgrade's.
    if (top / "pyproject.toml").is_file() and (top / name).is_dir():
        return top / name
    message = f"Warpgrade's own {name} are missing from {installed} and from a checkout around {package}"
    raise InfraError(message, hint="install Warpgrade again: `pip install --force-reinstall warpgrade`")


def cache_folder() -> Path:
    """Return the cache folder: `$WARPGRADE_CACHE`, else `warpgrade` in the user's cache folder."""
    if chosen := os.environ.get("WARPGRADE_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "warpgrade"
