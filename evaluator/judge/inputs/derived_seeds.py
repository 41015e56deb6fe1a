"""Seeds that follow from a call's own, one for each purpose; none of them tells another."""

import hashlib


def derived(seed: int, purpose: bytes) -> int:
    """Give another seed. The one for random numbers in forward is told to the runner, so it must tell no other's.

    Nor does it tell the next call's: that one is drawn from the operating system.
    """
    return int.from_bytes(hashlib.blake2b(seed.to_bytes(8, "big"), digest_size=8, person=purpose).digest(), "big") >> 1
