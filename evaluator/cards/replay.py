"""Comparison of a replayed grade with the original card. Two cards in, sentences out.

Equal seeds give equal inputs and weights: verdicts, checks and errors should agree to the last digit. Times vary and
are not compared.
"""

from collections.abc import Iterator

from evaluator.records import Check, Scorecard


def differences(before: Scorecard, after: Scorecard) -> list[str]:
    """Return the differences between the card `before` and its replay `after`; none if both agree."""
    return [*_verdict(before, after), *_checks(before.checks, after.checks)]


def changed_circumstances(before: Scorecard, after: Scorecard) -> list[str]:
    """Return the changed circumstances that may explain a difference."""
    pairs = {
        "the problem's files": (before.problem.sha256, after.problem.sha256),
        "the submission": (before.submission.sha256, after.submission.sha256),
        "the size": (before.problem.size, after.problem.size),
        "the mode": (before.mode, after.mode),
        "the device": (before.device.kind, after.device.kind),
        "the version of cards": (before.schema_version, after.schema_version),
        "torch": (before.environment.torch, after.environment.torch),
        "the compiler": (before.environment.compiler, after.environment.compiler),
        "Warpgrade": (before.environment.warpgrade, after.environment.warpgrade),
        "the processor": (before.environment.cpu, after.environment.cpu),
        "the number of threads": (before.environment.threads, after.environment.threads),
    }
    return [circumstance for circumstance, (old, new) in pairs.items() if old != new]


def _verdict(before: Scorecard, after: Scorecard) -> Iterator[str]:
    if before.status is not after.status:
        yield f"status {before.status.value}, now {after.status.value}"
    old, new = (card.reason.code if card.reason else "none" for card in (before, after))
    if old != new:
        yield f"reason {old}, now {new}"


def _checks(before: list[Check], after: list[Check]) -> Iterator[str]:
    if len(before) != len(after):
        yield f"{len(before)} checks, now {len(after)}"
    for old, new in zip(before, after, strict=False):
        if old.seed != new.seed:
            yield f"check {old.index} has another seed"
        elif old.ok is not new.ok:
            yield f"check {old.index} {'passed' if old.ok else 'failed'}, now {'passes' if new.ok else 'fails'}"
        elif old.tensors != new.tensors:
            yield f"check {old.index} has other errors"
