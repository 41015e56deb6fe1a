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
    return [what for what, (then, now) in pairs.items() if then != now]


def _verdict(before: Scorecard, after: Scorecard) -> Iterator[str]:
    if before.status is not after.status:
        yield f"status {before.status.value}, now {after.status.value}"
    then, now = (card.reason.code if card.reason else "none" for card in (before, after))
    if then != now:
        yield f"reason {then}, now {now}"


def _checks(before: list[Check], after: list[Check]) -> Iterator[str]:
    if len(before) != len(after):
        yield f"{len(before)} checks, now {len(after)}"
    for then, now in zip(before, after, strict=False):
        if then.seed != now.seed:
            yield f"check {then.index} has another seed"
        elif then.ok is not now.ok:
            yield f"check {then.index} {'passed' if then.ok else 'failed'}, now {'passes' if now.ok else 'fails'}"
        elif then.tensors != now.tensors:
            yield f"check {then.index} has other errors"
