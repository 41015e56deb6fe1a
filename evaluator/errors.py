"""The exceptions of Warpgrade. What a submission does wrong is never one of them: that is a value (`Finding`).

WarpgradeError
├── UsageError                 the command or one of its files is wrong                  exit 2
│   ├── ProblemNotFound        no problem of that name; carries the nearest names
│   ├── ProblemError           a problem folder or file is broken; says which key or function
│   ├── SubmissionUnreadable   the submission cannot be opened
│   └── CardError              a scorecard cannot be read, or is not one
└── InfraError                 this machine failed, not the submission                   exit 3
    ├── ToolchainMissing       no usable compiler
    ├── SandboxUnavailable     the isolation asked for cannot be had here
    ├── JudgeFailed            the judge's own side broke: memory, a lost starter, a full disk
    └── CardNotWritten         the grade is known, its scorecard could not be stored

Any other exception is a fault of ours. Within a grade it becomes a card of status `infra_error` (X608) and a traceback
on stderr; elsewhere a traceback and exit 3.
"""

from collections.abc import Sequence
from enum import IntEnum


class ExitCode(IntEnum):
    """What the command-line tool returns to the shell."""

    CORRECT = 0
    NOT_CORRECT = 1
    USAGE = 2
    INFRASTRUCTURE = 3
    INTERRUPTED = 130


class WarpgradeError(Exception):
    """Anything that ends a command with a message and no traceback."""

    exit_code = ExitCode.INFRASTRUCTURE

    def __init__(self, message: str, *, hint: str = "") -> None:
        """Keep the `message` (what is wrong) and the `hint` (what to do about it)."""
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(WarpgradeError):
    """The command, or a file it was given, is wrong."""

    exit_code = ExitCode.USAGE


class ProblemNotFound(UsageError):
    """No problem has the name that was asked for."""

    def __init__(self, name: str, nearest: Sequence[str], elsewhere: str | None = None) -> None:
        """Say which names are near to `name`, or where it may be: `elsewhere`."""
        hint = elsewhere or "`warpgrade problems list` names them all; --problems DIR looks in another folder"
        hint = f"did you mean {' or '.join(nearest)}?" if nearest else hint
        super().__init__(f"there is no problem named {name!r}", hint=hint)
        self.nearest = tuple(nearest)


class ProblemError(UsageError):
    """A problem's own files are broken."""


class SubmissionUnreadable(UsageError):
    """The submission's file cannot be opened."""


class CardError(UsageError):
    """A file is not a scorecard."""


class InfraError(WarpgradeError):
    """This machine failed; nothing is said about the submission."""

    exit_code = ExitCode.INFRASTRUCTURE


class ToolchainMissing(InfraError):
    """No usable compiler was found."""


class SandboxUnavailable(InfraError):
    """The isolation asked for cannot be had on this machine."""


class JudgeFailed(InfraError):
    """The judge's own side broke."""


class CardNotWritten(InfraError):
    """The grade is known but its scorecard could not be stored."""
