"""Import of Triton in the fork server, on behalf of the runners of Triton submissions.

Triton's installed backends are imported with Triton, and are trusted as PyTorch's are.

Import, and a hash of Triton's 200 MB of files once per process, otherwise take 0.55 s of each runner (Triton 3.6, two
cores).
"""

import contextlib
import os
from importlib import import_module

_HASH = "triton_key"

with contextlib.suppress(ImportError):  # A runner that imports Triton reports the absence.
    import_module("triton")
    if os.environ.get("TRITON_INTERPRET") != "1":  # The interpreter compiles nothing.
        for _name in ("triton.runtime.cache", "triton.compiler.compiler"):  # older versions: the second
            _hash = getattr(import_module(_name), _HASH, None)
            if callable(_hash):
                _hash()
                break
