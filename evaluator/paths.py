"""Where the data that comes with Warpgrade lies: beside the code in an installed wheel, at the top of a checkout."""

from pathlib import Path
from typing import Literal

from evaluator.errors import InfraError

DataName = Literal["problems", "solutions", "schemas"]

_PACKAGE = Path(__file__).resolve().parent


def data_dir(name: DataName, *, package: Path = _PACKAGE) -> Path:
    """Find the folder of the shipped `problems`, `solutions` or `schemas`.

    Args:
        name: which of them.
        package: the folder of the package `evaluator`; the running one unless a test says otherwise.

    Raises:
        InfraError: the installation lacks it.
    """
    installed = package / "_data" / name
    if installed.is_dir():
        return installed
    top = package.parent
    # Without this mark, a stranger's `problems` package in site-packages would be taken for ours.
    if (top / "pyproject.toml").is_file() and (top / name).is_dir():
        return top / name
    message = f"Warpgrade's own {name} are missing: neither {installed} nor a checkout around {package} holds them"
    raise InfraError(message, hint="install Warpgrade again: `pip install --force-reinstall warpgrade`")
