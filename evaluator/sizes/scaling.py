"""Smaller values for the constants of a reference: candidates and their order. Text and numbers only."""

from collections.abc import Iterator, Mapping

from evaluator.records import Constant

CAPS = (512, 256, 128, 96, 64, 48, 32, 24, 16, 12, 8, 6, 4)
_LEAST = 2


def candidates(full: Mapping[str, Constant]) -> Iterator[dict[str, Constant]]:
    """Yield the full constants, then with decreasing caps on all, then with a single constant unchanged.

    >>> [each["n"] for each in candidates({"n": 48})][:5]
    [48, 24, 16, 12, 8]
    """
    seen: list[dict[str, Constant]] = []
    spared: tuple[str | None, ...] = (None, *full)
    for spare in spared:
        for cap in (1 << 62, *CAPS):
            made = {name: value if name == spare else capped(value, cap) for name, value in full.items()}
            if made not in seen:
                seen.append(made)
                yield made


def capped(value: Constant, cap: int) -> Constant:
    """Return the largest divisor of an integer up to `cap`: constants that must divide each other often still do.

    >>> capped(4096, 100), capped(1000, 100), capped(97, 64), capped(3, 2), capped(0.5, 8), capped([64, 3], 8)
    (64, 100, 64, 3, 0.5, [8, 3])
    """
    if isinstance(value, list):
        return [_capped(each, cap) for each in value]
    return value if isinstance(value, bool) or not isinstance(value, int) else _capped(value, cap)


def _capped(value: int, cap: int) -> int:
    if value <= max(cap, 2 * _LEAST):
        return value
    return next((each for each in range(cap, max(_LEAST, cap // 2) - 1, -1) if value % each == 0), cap)
