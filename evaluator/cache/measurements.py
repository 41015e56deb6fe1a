"""What was measured once, and is kept in the cache folder: facts about a GPU, counts of a problem, baselines."""

import hashlib
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from evaluator.cache.build_cache import BuildCache, cache_folder
from evaluator.cache.eviction import CacheNamespace
from evaluator.records import Record

R = TypeVar("R", bound=Record)


def measured_once(parts: Sequence[object], form: type[R], make: Callable[[], R]) -> R:
    """Look up what `parts` name, or make it and keep it. What `make` raises is passed on, and nothing is kept then.

    `parts` must name all that it depends on; `form` is part of that, so a record that changed is made anew. Only the
    judge writes into the cache.
    """
    if (found := look_up(parts, form)) is not None:
        return found
    started = time.monotonic()
    made = make()
    # Where what is there already is not ours, this cannot take its place, and is as good.
    _shelf().put(_key(parts, form), msgspec.json.encode(made), log="", wall_s=time.monotonic() - started)
    return made


def look_up(parts: Sequence[object], form: type[R]) -> R | None:
    """Look up what `parts` name; None where it is still to be made."""
    if (entry := _shelf().get(_key(parts, form))) is None:
        return None
    try:
        return msgspec.json.decode(entry.library, type=form)
    except msgspec.DecodeError:
        return None


def _key(parts: Sequence[object], form: type[Record]) -> str:
    # With the records inside of it: a change of one is a change of what is kept.
    return hashlib.sha256(msgspec.json.encode([msgspec.json.schema(form), *parts], enc_hook=str)).hexdigest()


def _shelf() -> BuildCache:
    return BuildCache(cache_folder(), shelf=CacheNamespace.MEASURED)
