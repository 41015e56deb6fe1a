"""The cache as text: contents and removed entries. Pure, and without rich: a script may ask often."""

from evaluator.cache.eviction import LIMIT_VARIABLE, CacheCleared, CacheNamespace, CacheUsage, NamespaceUsage

_MEANING = {
    CacheNamespace.BUILDS: "submissions' extensions",
    CacheNamespace.FAILURES: "failed compilations with their messages",
    CacheNamespace.MACHINE_CODE: "instruction counts of submissions' extensions",
    CacheNamespace.PARTS: "Warpgrade's own runtime, headers, allocators, kernels",
    CacheNamespace.PREPARED: "parts shared by CUDA builds",
    CacheNamespace.MEASURED: "measurements of GPUs and problems",
}
_UNITS = ("KiB", "MiB", "GiB", "TiB")


def usage_text(usage: CacheUsage) -> str:
    """Return folder, limit and total size, and one line for each kind of entry."""
    lines = [
        f"folder    {usage.folder}",
        f"used      {size(usage.bytes)} of {size(usage.limit_bytes)} ({LIMIT_VARIABLE})",
        *map(_line, usage.shelves),
    ]
    if usage.unfinished_bytes:
        lines.append(f"unfinished {size(usage.unfinished_bytes)}")
    return "\n".join(lines) + "\n"


def cleared_text(cleared: CacheCleared) -> str:
    """Return the counts of removed and remaining entries."""
    entries = sum(shelf.entries for shelf in cleared.shelves)
    lines = [f"{entry_count(entries)} removed from {cleared.folder}, {size(cleared.bytes)}"]
    lines += [_line(shelf) for shelf in cleared.shelves if shelf.entries]
    if cleared.stayed:
        lines.append(f"{entry_count(cleared.stayed)} kept: in use, or owned by another user")
    return "\n".join(lines) + "\n"


def size(size_bytes: int) -> str:
    """Format a size in its natural unit.

    >>> size(512), size(10 << 30), size(1 << 19)
    ('512 B', '10.0 GiB', '512.0 KiB')
    """
    if size_bytes < 1024:
        return f"{size_bytes} B"
    value = float(size_bytes)
    for unit in _UNITS:
        value /= 1024
        if value < 1024 or unit == _UNITS[-1]:
            return f"{value:.1f} {unit}"
    raise AssertionError("there is a last unit")


def entry_count(number: int) -> str:
    """Format a number of entries.

    >>> entry_count(1), entry_count(2)
    ('1 entry', '2 entries')
    """
    return "1 entry" if number == 1 else f"{number} entries"


def _line(usage: NamespaceUsage) -> str:
    return f"{usage.kind.value:<9} {size(usage.bytes):>10}  {entry_count(usage.entries):<12} {_MEANING[usage.kind]}"
