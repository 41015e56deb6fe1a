"""Packages available to submissions: the packages installed beside Warpgrade."""

import importlib.util
import re

from evaluator.findings import Code, finding
from evaluator.languages.installations import is_importable
from evaluator.languages.registry import PACKAGES, install_command, language_of_package
from evaluator.records import DeviceKind, Finding

OF_THE_FIELD = ("numpy", *PACKAGES, "scipy", "einops", "numba", "transformers")
"""Packages used by submissions beside PyTorch; the installed packages are listed."""
_MISSING = re.compile(r"No module named '(?P<name>[A-Za-z_]\w{0,60})(?:\.[\w.]{1,100})?'")


def importable() -> list[str]:
    """Return the packages of the field available to submissions on this machine."""
    return ["torch", *(name for name in OF_THE_FIELD if importlib.util.find_spec(name) is not None)]


def missing_package(kind: str, message: str) -> str | None:
    """Return the package that an import did not find; None for any other exception.

    >>> missing_package("ModuleNotFoundError", "No module named 'einops.layers'")
    'einops'
    """
    match = _MISSING.match(message) if kind == "ModuleNotFoundError" else None
    # A missing part of an installed package is the submission's own mistake.
    return None if match is None or _is_there(match["name"]) else match["name"]


def missing_language(module: str) -> str | None:
    """Return the package of a kernel language that is not installed; None for any other module."""
    package = module.partition(".")[0]
    return None if language_of_package(package) is None or _is_there(package) else package


def missing_finding(package: str, line: int | None, device: DeviceKind) -> Finding:
    """Return the finding for a missing package. A missing kernel language says nothing about the submission."""
    if (language := language_of_package(package)) is not None:
        message = f"the kernel language {language.title} is not installed: {install_command(language)}"
        if device not in language.runs_on:
            devices = " and ".join(supported.value for supported in DeviceKind if supported in language.runs_on)
            message += f" ({language.title} runs on {devices}, not on {device.value})"
        return finding(Code.LANGUAGE_MISSING, message, line=line, package=package)
    message = f"the package {package} is not installed; installed packages: {', '.join(importable())}"
    return finding(Code.PACKAGE_MISSING, message, line=line, package=package)


def _is_there(name: str) -> bool:
    return is_importable(name, with_code=language_of_package(name) is not None)
