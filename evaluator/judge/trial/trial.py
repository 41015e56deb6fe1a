"""Results of one call, as a trial runner returns them."""

from typing import NamedTuple

from evaluator.records import Check, Fault, Profile, TensorCheck


class Trial(NamedTuple):
    """Result of one call: the check, the fault unless the call passed, and the clock's measurements."""

    check: Check | None
    fault: Fault | None
    elapsed_ms: float
    copied: bool
    host_ms: float | None = None
    prepared_ms: float | None = None
    lag_ms: float | None = None
    profile: Profile = Profile.AS_GIVEN
    some_bits: bytes = b""
    """Bits of a wrong answer at fixed places; empty for others."""
    refused: str = ""
    """The runner's description of a refused launch; empty without one."""


class EarlierWeightsTrial(NamedTuple):
    """An answer with earlier weights: checks with expected values for earlier weights, and for the call's.

    The answer `is_right` for the earlier weights, or has wrong values. `some_bits` are the answer's at fixed places.
    """

    with_earlier: list[TensorCheck]
    with_current: list[TensorCheck]
    is_right: bool = True
    some_bits: bytes = b""
