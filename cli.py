"""The command line: it reads what was asked for, calls the evaluator, shows what comes back and sets the exit code."""

import difflib
import math
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from evaluator.catalog import Listing, find_problem, list_problems
from evaluator.errors import CardError, CardNotWritten, ExitCode, UsageError, WarpgradeError
from evaluator.findings import ENTRIES, Code
from evaluator.records import DeviceKind, Problem, Scorecard, SizeName, Status, ToleranceRule
from evaluator.report.text import counted, one_line, printable
from evaluator.version import __version__

if TYPE_CHECKING:
    from rich.console import Console

    from evaluator.pipeline import GradeRequest

_AUTO = "auto"


class Seconds(click.ParamType):
    """A length of time: a finite number of seconds above zero."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read a number of seconds."""
        try:
            seconds = float(value)
        except ValueError:
            self.fail(f"{value!r} is not a number of seconds", param, ctx)
        if not (math.isfinite(seconds) and seconds > 0):
            self.fail(f"{value!r} is not a length of time", param, ctx)
        return seconds


def _complete_problem(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Offer the names of problems to the shell; a completion has no way to report an error."""
    try:
        problems = list_problems(ctx.params.get("problems")).problems
    except WarpgradeError:
        return []
    return [problem.name for problem in problems if problem.name.startswith(incomplete)]


_problems_option = click.option(
    "--problems",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    envvar="WARPGRADE_PROBLEMS",
    help="Look for problems in this folder instead of among the shipped ones.",
)
_json_option = click.option("--json", "as_json", is_flag=True, help="Write JSON to stdout, and nothing else.")


@click.group(context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "WARPGRADE"})
@click.version_option(__version__, prog_name="warpgrade", message="%(prog)s %(version)s")
def warpgrade() -> None:
    """Grade GPU kernels written against PyTorch references.

    \b
    Exit status:
      0    the submission is correct
      1    it is not, or no verdict was possible on this device
      2    the command, or a file that it was given, is wrong
      3    this machine failed; nothing is said about the submission
      130  interrupted
    """


@warpgrade.command()
@click.argument("problem", required=False, shell_complete=_complete_problem)
@click.argument("submission", required=False, type=click.Path(allow_dash=True))
@click.option(
    "--device",
    type=click.Choice([_AUTO, *DeviceKind]),
    default=_AUTO,
    show_default=True,
    help="Where the submission is run.",
)
@click.option(
    "--size", type=click.Choice(list(SizeName)), help="Which of the problem's sizes.  [default: full on cuda, else small]"
)
@_problems_option
@click.option(
    "--tolerance",
    type=click.Choice(list(ToleranceRule)),
    help="How far an output may be off.  [default: measured]",
)
@click.option(
    "--sandbox",
    type=click.Choice(["full", "none"]),
    default="full",
    show_default=True,
    help="The walls around the submission; none is for your own code only.",
)
@click.option("--timeout", type=Seconds(), metavar="SECONDS", help="The limit of each stage but the build.")
@click.option(
    "--build-timeout",
    type=Seconds(),
    metavar="SECONDS",
    default=600.0,
    show_default=True,
    help="The limit of one extension's compilation.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where the scorecard is written.  [default: scorecards/PROBLEM/NAME.json]",
)
@_json_option
@click.option(
    "--replay",
    type=click.Path(path_type=Path),
    metavar="CARD",
    help="Grade what this scorecard holds again, with its seeds.",
)
@click.option("--quiet", "-q", is_flag=True, help="Show no progress.")
def grade(
    *,
    problem: str | None,
    submission: str | None,
    output: Path | None,
    as_json: bool,
    quiet: bool,
    replay: Path | None,
    **options: Any,
) -> ExitCode:
    """Grade SUBMISSION against PROBLEM and write its scorecard.

    PROBLEM is a name that `warpgrade problems list` shows, or a path. SUBMISSION is a Python file that defines
    ModelNew, or the answer of a language model that holds one in a fenced block; - reads stdin.
    With --replay CARD both may be left out.
    """
    from evaluator import pipeline
    from evaluator.report.live import progress_on
    from evaluator.store import card_bytes, check_target, read_card, write_card

    replayed = read_card(replay) if replay is not None else None
    request = _request(problem, submission, replayed, **options)
    target = output or _default_target(request.problem, submission, replayed)
    check_target(target)
    with progress_on(sys.stderr, quiet=quiet) as progress:
        card = pipeline.grade(request, progress)
    not_written: CardNotWritten | None = None
    try:
        write_card(card, target)
    except CardNotWritten as error:
        not_written = error  # the grade is known all the same: show it before failing
    if as_json:
        _emit(card_bytes(card))
    else:
        _show_card(card, None if not_written else target)
    if not_written is not None:
        raise not_written
    return _exit_code(card)


def _request(
    problem: str | None,
    submission: str | None,
    replayed: Scorecard | None,
    *,
    device: str,
    size: str | None,
    problems: Path | None,
    tolerance: str | None,
    sandbox: str,
    timeout: float | None,
    build_timeout: float,
) -> "GradeRequest":
    """Put together what is asked for: what was said on the command line, then what the replayed card says."""
    from evaluator.isolation import SandboxMode
    from evaluator.pipeline import GradeRequest
    from evaluator.submissions import read_submission, submission_of

    if replayed is None and (problem is None or submission is None):
        missing = "PROBLEM and SUBMISSION" if problem is None else "SUBMISSION"
        raise click.UsageError(f"{missing} must be named, unless --replay names a scorecard")
    kind = _device(device, replayed)
    return GradeRequest(
        problem=find_problem(problem or replayed.problem.name, problems),
        submission=submission_of(replayed) if submission is None else read_submission(submission),
        device=kind,
        size=_size(size, replayed, kind),
        tolerance=ToleranceRule(tolerance or (replayed.tolerance if replayed else ToleranceRule.MEASURED)),
        sandbox=SandboxMode(sandbox),
        timeout_s=timeout,
        build_timeout_s=build_timeout,
        replay=replayed,
    )
