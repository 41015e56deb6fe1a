"""What a program asks for, in words, as the terms of grades."""

from evaluator.batch.manifest import Terms
from evaluator.doctor import default_device
from evaluator.errors import UsageError
from evaluator.records import DeviceKind, SizeName, ToleranceRule


def terms_for(
    device: str | None, size: str | None, tolerance: str, timeout_s: float | None, build_timeout_s: float
) -> Terms:
    """Put the terms together; None is this machine's, or the device's, own choice.

    Raises:
        UsageError: a word says nothing that is known.
    """
    try:
        return Terms(
            device=default_device() if device is None else DeviceKind(device),
            size=SizeName(size) if size is not None else None,
            tolerance=ToleranceRule(tolerance),
            timeout_s=timeout_s,
            build_timeout_s=build_timeout_s,
        )
    except ValueError as error:
        raise UsageError(str(error)) from error
