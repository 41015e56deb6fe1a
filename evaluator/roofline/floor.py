"""Lower bound on the time of a call's memory traffic. Pure."""


def floor_ms(*, read_bytes: int, written_bytes: int, bandwidth_bytes_per_s: float, l2_bytes: int) -> float:
    """Return the time to read `read_bytes` and to write the bytes beyond the L2 capacity, at the measured bandwidth.

    Without warm inputs, which the caller leaves out of `read_bytes`, no input is cached when a call starts (the clock
    overwrites the cache), so every necessary byte is read from memory. Outputs may still be cached when the call ends:
    on an H200 with 63 MB of L2, 37 % of an output of 59 MB never reached memory. A lower bound counts only unavoidable
    traffic.

    Raises:
        ValueError: a size is negative, or the bandwidth is not a positive number.

    >>> floor_ms(read_bytes=4_000_000, written_bytes=1_000_000, bandwidth_bytes_per_s=4e12, l2_bytes=600_000)
    0.0011
    """
    if min(read_bytes, written_bytes, l2_bytes) < 0:
        raise ValueError("a number of bytes is not negative")
    if not 0 < bandwidth_bytes_per_s < float("inf"):
        raise ValueError(f"{bandwidth_bytes_per_s} bytes per second are no bandwidth")
    return (read_bytes + max(0, written_bytes - l2_bytes)) / bandwidth_bytes_per_s * 1e3
