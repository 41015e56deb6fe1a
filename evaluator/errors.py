"""The exceptions of Warpgrade. Errors of a submission are never exceptions, but values (`Finding`).

WarpgradeError
├── UsageError                 the command or one of its files is wrong                  exit 2
│   ├── ProblemNotFound        no problem has that name; contains the nearest names
│   ├── ProblemError           a problem folder or file is broken; names the key or function
│   ├── SubmissionUnreadable   the submission cannot be opened
│   └── CardError              a scorecard cannot be read, or the file is not a scorecard
└── InfraError                 this machine failed, not the submission                   exit 3
    ├── ToolchainMissing       no usable compiler
    ├── SandboxUnavailable     the machine does not allow the requested isolation
    ├── JudgeFailed            the judge failed: memory, a lost starter, a full disk
    │   └── OutlivesKill       many processes of a runner end slowly; within a grade, a fault of the submission
    └── CardNotWritten         the grade is known, but the scorecard could not be stored

Any other exception is a bug in Warpgrade. Within a grade it becomes a card of status `infra_error` (X608) and a
traceback on stderr; elsewhere a traceback and exit 3.
"""

from collections.abc import Sequence
from enum import IntEnum

_MOST_NEAREST = 8


class ExitCode(IntEnum):
    """Exit statuses of the command-line tool."""

    CORRECT = 0
    NOT_CORRECT = 1
    USAGE = 2
    INFRASTRUCTURE = 3
    INTERRUPTED = 130


class WarpgradeError(Exception):
    """Base of all errors that end a command with a message and no traceback."""

    exit_code = ExitCode.INFRASTRUCTURE

    def __init__(self, message: str, *, hint: str = "") -> None:
        """Store the `message` (the error) and the `hint` (its remedy)."""
        super().__init__(message)
        self.message = message
        self.hint = hint
        if hint:
            self.add_note(hint)  # Part of a traceback: callers of the library see no screen of the command line.


class UsageError(WarpgradeError):
    """The command, or a file named in it, is wrong."""

    exit_code = ExitCode.USAGE


class ProblemNotFound(UsageError):
    """No problem has the requested name, or several have."""

    def __init__(
        self, name: str, nearest: Sequence[str], elsewhere: str | None = None, *, is_ambiguous: bool = False
    ) -> None:
        """Store names `nearest` to `name` for the hint, or a hint about other locations: `elsewhere`.

        `is_ambiguous`: the short name `name` means each of `nearest`.
        """
        hint = elsewhere or "`warpgrade problems list` lists all problems; --problems DIR selects another folder"
        hint = f"did you mean {' or '.join(nearest[:_MOST_NEAREST])}?" if nearest else hint
        message = f"there is no problem named {name!r}"
        if is_ambiguous:
            message = f"{name!r} may mean each of {len(nearest)} problems"
        super().__init__(message, hint=hint)
        self.nearest = tuple(nearest)


class ProblemError(UsageError):
    """The files of a problem are broken."""


class SubmissionUnreadable(UsageError):
    """The submission's file cannot be opened."""


class CardError(UsageError):
    """A file is not a scorecard."""


class InfraError(WarpgradeError):
    """This machine failed; nothing is known about the submission."""

    exit_code = ExitCode.INFRASTRUCTURE


class ToolchainMissing(InfraError):
    """No usable compiler was found."""


class SandboxUnavailable(InfraError):
    """This machine does not allow the requested isolation."""


class JudgeFailed(InfraError):
    """The judge failed."""


class OutlivesKill(JudgeFailed):
    """Many processes of a runner were not gone long after their kill: the submission has chosen a slow end."""


class CardNotWritten(InfraError):
    """The grade is known, but the scorecard could not be stored."""
