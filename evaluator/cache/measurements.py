"""Cached measurements: facts about a GPU, operation counts of a problem, baselines."""

import hashlib
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from evaluator.cache.build_cache import BuildCache
from evaluator.cache.eviction import CacheNamespace
from evaluator.paths import cache_folder
from evaluator.records import Record

R = TypeVar("R", bound=Record)
N = TypeVar("N")


def measured_once(parts: Sequence[object], form: type[R], make: Callable[[], R | N]) -> R | N:
    """Return the cached record for `parts`, or make and store the record. Only a `form` is stored, no other result.

    `parts` must name all inputs of the measurement. The schema of `form` is part of the key, so a changed record class
    invalidates old entries. Only the judge writes to the cache.
    """
    if (cached := look_up(parts, form)) is not None:
        return cached
    started = time.monotonic()
    result = make()
    if isinstance(result, form):
        # No effect if another process stored a record first; both are valid.
        _cache().put(_key(parts, form), msgspec.json.encode(result), log="", wall_s=time.monotonic() - started)
    return result


def forget(parts: Sequence[object], form: type[Record]) -> None:
    """Remove the cached record for `parts`, for a measurement that no longer holds."""
    _cache().discard(_key(parts, form))


def look_up(parts: Sequence[object], form: type[R]) -> R | None:
    """Return the cached record for `parts`; None if missing."""
    if (entry := _cache().get(_key(parts, form))) is None:
        return None
    try:
        return msgspec.json.decode(entry.library, type=form)
    except msgspec.DecodeError:
        return None


def _key(parts: Sequence[object], form: type[Record]) -> str:
    # The schema includes nested records: a changed nested record changes the key.
    return hashlib.sha256(msgspec.json.encode([msgspec.json.schema(form), *parts], enc_hook=str)).hexdigest()


def _cache() -> BuildCache:
    return BuildCache(cache_folder(), namespace=CacheNamespace.MEASURED)
