"""grade and batch."""

import contextlib
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from evaluator.commands import terminal
from evaluator.commands.options import (
    ValueMayFollow,
    complete_problem,
    grading_options,
    json_option,
    sign_option,
    taken_options,
)
from evaluator.errors import CardError, CardNotWritten, ExitCode
from evaluator.records import ProfilerKind, Scorecard, Status


@click.command(cls=ValueMayFollow)
@click.argument("problem", required=False, shell_complete=complete_problem)
@click.argument("submission", required=False, type=click.Path(allow_dash=True))
@grading_options
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where the scorecard is written.  [default: scorecards/PROBLEM/NAME.json]",
)
@click.option(
    "--name",
    metavar="NAME",
    help="What the submission is called on its card.  [default: the file's name; stdin-HASH for -]",
)
@json_option
@sign_option
@click.option(
    "--speedup-of",
    type=click.Path(),
    metavar="FILE",
    help="Time another submission too, and say how much faster this one is.",
)
@click.option(
    "--profile",
    type=click.Choice([kind.value for kind in ProfilerKind]),
    is_flag=False,
    flag_value=ProfilerKind.TORCH.value,
    help="Run it once more, untimed, to see in which kernels the time goes; on cuda, ncu adds bandwidth and occupancy. "
    "Without a word it is torch.",
)
@click.option(
    "--replay",
    type=click.Path(path_type=Path),
    metavar="CARD",
    help="Grade what this scorecard holds again, with its seeds.",
)
@click.option(
    "--changed-problem",
    is_flag=True,
    help="Replay although the problem's files are not those of the scorecard.",
)
@click.option("--quiet", "-q", is_flag=True, help="Show no progress.")
def grade(
    *,
    output: Path | None,
    as_json: bool,
    quiet: bool,
    **named: Any,
) -> ExitCode:
    """Grade SUBMISSION against PROBLEM and write its scorecard.

    PROBLEM is a name that `warpgrade problems list` shows, or a path. SUBMISSION is a Python file that defines
    ModelNew, or the answer of a language model that holds one in a fenced block; - reads stdin.
    With --replay CARD both may be left out: the submission is the card's, and the problem is looked up by the card's
    name of it, among the shipped ones or in --problems. A card never makes a file be read or run.
    """
    from evaluator.files.store import card_bytes, check_target, write_card
    from evaluator.grading import pipeline
    from evaluator.report.live import progress_on
    from evaluator.request import GradeArguments, default_target, request_for
    from evaluator.signatures.keys import signing_key
    from evaluator.signatures.signing import signed

    options = taken_options(named)
    request = request_for(GradeArguments(**named), options)
    key = signing_key(request.terms.options.signing_key, walls=request.terms.options.has_walls)
    target = output or default_target(request)
    check_target(target, named=output is not None)
    before = None if output is not None else _card_at(target)

    def stuck(card: Scorecard) -> NoReturn:
        card = signed(card, key)
        with contextlib.suppress(CardNotWritten):
            write_card(card, target, named=output is not None)
        if as_json:
            terminal.emit(card_bytes(card))
        else:
            terminal.show_card(card, target)
        os._exit(_exit_code(card))

    with progress_on(sys.stderr, quiet=quiet) as progress:
        card = signed(pipeline.grade(request, progress, last_resort=stuck), key)
    not_written: CardNotWritten | None = None
    try:
        write_card(card, target, named=output is not None)
        _tell_replaced(before, card, target)
    except CardNotWritten as error:
        not_written = error  # the grade is known all the same: show it before failing
    if as_json:
        terminal.emit(card_bytes(card))
    else:
        terminal.show_card(card, None if not_written else target)
    if request.replay is not None:
        _tell_replay(request.replay, card)
    if not_written is not None:
        raise not_written
    return _exit_code(card)


def _card_at(path: Path) -> Scorecard | None:
    """Read what lies where a card will be written; None where that is no card."""
    from evaluator.files.store import read_card

    try:
        return read_card(path, path.parent)
    except CardError:
        return None


def _tell_replaced(before: Scorecard | None, card: Scorecard, path: Path) -> None:
    """Say what was replaced, if it was a grade of another kind: one place holds one card of a submission."""
    if before is None or _kind(before) == _kind(card):
        return
    was = f"{before.status.value} on {before.device.kind.value}, size {before.problem.size.value}"
    terminal.tell(f"replaced: {path} held another grade ({was}); --output FILE keeps both")


def _kind(card: Scorecard) -> tuple[str, str]:
    return card.device.kind.value, card.problem.size.value


def _tell_replay(before: Scorecard, after: Scorecard) -> None:
    """Say whether a replay came out the same, and if not, what else is not as it was."""
    from evaluator.replay import changed_circumstances, differences

    found, changed = differences(before, after), changed_circumstances(before, after)
    terminal.tell("replay: came out the same" if not found else f"replay: differs: {'; '.join(found)}")
    if changed:
        terminal.tell(f"replay: not as it was then: {', '.join(changed)}")


def _exit_code(card: Scorecard) -> ExitCode:
    match card.status:
        case Status.CORRECT:
            return ExitCode.CORRECT
        case Status.INFRA_ERROR:
            return ExitCode.INFRASTRUCTURE
        case _:
            return ExitCode.NOT_CORRECT


@click.command()
@click.argument("submissions", type=click.Path(allow_dash=True))
@click.option(
    "--run",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="The run's folder; the same command on it goes on.",
)
@grading_options
@sign_option
@click.option(
    "--jobs", "-j", type=click.IntRange(1), metavar="N", help="How many at once.  [default: what the device allows]"
)
@click.option(
    "--ray",
    metavar="ADDRESS",
    help="Grade on a Ray cluster: its address, auto for the one here, or local for a new one.",
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Take only the first N submissions.")
@click.option("--shard", metavar="K/N", help="Take only part K of N; equal submissions fall into one part.")
@click.option(
    "--retry",
    type=click.Choice(["infra", "failed"]),
    help="Grade again where the machine failed, or whatever is not correct.",
)
@click.option("--fresh", is_flag=True, help="Begin again: remove the cards that are there.")
@click.option("--fail-fast", is_flag=True, help="Begin nothing more once a submission is not correct.")
@click.option("--jsonl", is_flag=True, help="Write a line of JSON to stdout for each submission.")
def batch(*, jsonl: bool, **named: Any) -> ExitCode:
    """Grade all SUBMISSIONS into the folder of a run.

    SUBMISSIONS is a folder of PROBLEM/NAME.py (or .txt, .md: answers of a language model), a run folder of
    KernelBench, or a file of lines {"problem": ..., "sample": ..., "source": ...}; - reads such lines from stdin.
    """
    from evaluator.batch.command import BatchArguments, run_batch

    options = taken_options(named)
    arguments = BatchArguments(**named)
    try:
        tally = run_batch(arguments, options, sys.stderr, sys.stdout if jsonl else None)
    except KeyboardInterrupt:
        terminal.tell("every card so far is kept; the same command goes on")
        raise
    terminal.tell(f"{tally}; next: warpgrade report {arguments.run}")
    return tally.exit_code
