"""Location of the cache. Imports nothing that a lookup of the location does not need."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return the cache folder: `$WARPGRADE_CACHE`, else `warpgrade` in the user's cache folder."""
    if chosen := os.environ.get("WARPGRADE_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "warpgrade"
