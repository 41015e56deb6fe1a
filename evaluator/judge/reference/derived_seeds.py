"""Seeds derived from a call's seed, a separate seed for each purpose."""

import hashlib


def derived(seed: int, purpose: bytes) -> int:
    """Return a seed for `purpose` that reveals neither `seed` nor the seed of another purpose.

    The runner receives only the seed for random numbers in forward, and must not learn any other. The next call's seed
    also stays unknown: each call's seed comes from the operating system.
    """
    return int.from_bytes(hashlib.blake2b(seed.to_bytes(8, "big"), digest_size=8, person=purpose).digest(), "big") >> 1
