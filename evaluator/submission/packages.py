"""Which packages a submission may import: what is installed where Warpgrade is."""

import importlib.util
import re

OF_THE_FIELD = ("numpy", "triton", "scipy", "einops", "numba", "cupy", "cutlass", "tilelang", "transformers")
"""Those that submissions import beside PyTorch; they are named where they are there."""
_MISSING = re.compile(r"No module named '(?P<name>[A-Za-z_]\w{0,60})(?:\.[\w.]{1,100})?'")


def importable() -> list[str]:
    """Name the packages that a submission can import here, as far as its field uses them."""
    return ["torch", *(name for name in OF_THE_FIELD if importlib.util.find_spec(name) is not None)]


def missing_package(kind: str, said: str) -> str | None:
    """Give the package that an import did not find; None where that is not what an exception says.

    >>> missing_package("ModuleNotFoundError", "No module named 'einops.layers'")
    'einops'
    """
    found = _MISSING.match(said) if kind == "ModuleNotFoundError" else None
    # A part of a package that is there is the submission's own mistake.
    return None if found is None or _is_there(found["name"]) else found["name"]


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ValueError:  # A module without a spec is there, as `__main__` is.
        return True
