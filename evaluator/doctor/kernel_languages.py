"""Installed kernel languages of the machine."""

from evaluator.languages.language import Language
from evaluator.languages.registry import found_installation, install_command
from evaluator.languages.table import LANGUAGES
from evaluator.records import DeviceKind, Record, Toolchain


class InstalledLanguage(Record, frozen=True):
    """Kernel language: installed version, devices, and the command for the installation."""

    toolchain: Toolchain
    title: str
    ok: bool
    found: str
    runs_on: list[DeviceKind]
    fix: str


def kernel_languages() -> list[InstalledLanguage]:
    """Return all languages but inline CUDA and C++: their compilers have separate lines."""
    return [_installed(language) for language in LANGUAGES if language.installation is not None]


def _installed(language: Language) -> InstalledLanguage:
    installation = found_installation(language)
    return InstalledLanguage(
        toolchain=language.toolchain,
        title=language.title,
        ok=installation is not None,
        found="not installed" if installation is None else installation.version,
        runs_on=[device for device in DeviceKind if device in language.runs_on],
        fix="" if installation is not None else install_command(language),
    )
