"""The commands grade and batch."""

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from evaluator.commands import terminal, workflow
from evaluator.commands.options import (
    FOLDER_PATH,
    ResultFormat,
    ValueMayFollow,
    WithProjectFile,
    chosen_format,
    complete_problem,
    format_option,
    grading_options,
    json_option,
    one_of,
    ray_option,
    sign_option,
    taken_options,
)
from evaluator.errors import CardError, CardNotWritten, ExitCode
from evaluator.records import ProfilerKind, Scorecard, Status

if TYPE_CHECKING:
    from evaluator.commands.watch import WatchedGrades
    from evaluator.grading.pipeline import LastResort
    from evaluator.grading.request import GradeRequest
    from evaluator.signatures.keys import SigningKey


@click.command(cls=ValueMayFollow)
@click.argument("problem", required=False, shell_complete=complete_problem)
@click.argument("submission", required=False, type=click.Path(allow_dash=True))
@grading_options
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File for the scorecard.  [default: scorecards/PROBLEM/NAME.json]",
)
@click.option(
    "--name",
    metavar="NAME",
    help="Name of the submission on the scorecard.  [default: the file's name; stdin-HASH for -]",
)
@json_option
@format_option
@sign_option
@click.option(
    "--speedup-of",
    type=click.Path(),
    metavar="FILE",
    help="Also time the submission in FILE, and report the speedup over it.",
)
@click.option(
    "--profile",
    type=one_of([kind.value for kind in ProfilerKind]),
    is_flag=False,
    flag_value=ProfilerKind.TORCH.value,
    help="Profile one additional, untimed call by kernel; on cuda, ncu adds bandwidth and occupancy. "
    "--profile alone means torch.",
)
@click.option(
    "--replay",
    type=click.Path(path_type=Path),
    metavar="CARD",
    help="Grade the submission of this scorecard again, with its seeds.",
)
@click.option(
    "--changed-problem",
    is_flag=True,
    help="Replay even if the problem's files have changed since the scorecard.",
)
@click.option(
    "--ready/--no-ready",
    default=True,
    show_default=True,
    envvar="WARPGRADE_READY",
    show_envvar=True,
    help="Let the ready judge grade if it runs (see `warpgrade serve`).",
)
@click.option("--watch", is_flag=True, help="Grade again when a file of submission or problem changes, until Ctrl-C.")
@click.option("--quiet", "-q", is_flag=True, help="Show no progress.")
def grade(
    *,
    as_json: bool,
    output_format: str | None,
    watch: bool,
    **named: Any,
) -> int | None:
    """Grade SUBMISSION against PROBLEM and write its scorecard.

    PROBLEM is a name from `warpgrade problems list`, or a path. SUBMISSION is a Python file that defines ModelNew,
    a folder with a submission.toml, or a language model's answer with a fenced block; - reads stdin.
    With --replay CARD both arguments are optional: the card contains the submission, and the card's problem name is
    looked up among the shipped problems or in --problems. A card never causes another file to be read or run.
    """
    form = chosen_format(output_format, as_json=as_json)
    if watch:
        return _watched(named, form)
    return _grade(form, **named)


def _grade(
    form: ResultFormat,
    *,
    output: Path | None,
    ready: bool,
    quiet: bool,
    watched: "WatchedGrades | None" = None,
    **named: Any,
) -> ExitCode | None:
    """Make a grade, then write and show the card. None after a change of the watched files."""
    from evaluator.commands.ready import graded_ready
    from evaluator.files.card_files import check_target, write_card
    from evaluator.grading.resolved_request import GradeArguments, default_target, request_for
    from evaluator.signatures.keys import signing_key

    options = taken_options(named)
    request = request_for(GradeArguments(**named), options)
    key = signing_key(request.terms.options.signing_key, sandboxed=request.terms.options.is_sandboxed)
    target = output or default_target(request)
    check_target(target, named=output is not None)
    before = None if output is not None else _card_at(target)

    def stuck(card: Scorecard) -> NoReturn:
        card = _signed(card, key)
        with contextlib.suppress(CardNotWritten):
            write_card(card, target, named=output is not None)
        _show(card, target, form)
        os._exit(_exit_code(card))

    meanwhile = terminal.import_card_screen if form is ResultFormat.FULL else lambda: None
    if watched is not None:
        card = watched.card_of(request, ready=ready, quiet=quiet)
        if card is None:
            return None
    else:
        card = graded_ready(request, quiet=quiet, meanwhile=meanwhile) if ready else None
    card = _signed(_graded_here(request, stuck, quiet=quiet) if card is None else card, key)
    not_written: CardNotWritten | None = None
    try:
        write_card(card, target, named=output is not None)
        _tell_replaced(before, card, target)
    except CardNotWritten as error:
        # Show the known grade before failing.
        hint = "print the scorecard with --json, or choose another file with --output"
        not_written = CardNotWritten(error.message, hint=hint)
    _show(card, None if not_written else target, form)
    if request.replay is not None:
        _tell_replay(request.replay, card)
    if not_written is not None:
        raise not_written
    return _exit_code(card)


def _watched(named: dict[str, Any], form: ResultFormat) -> int:
    import time

    from evaluator.commands.main import guarded
    from evaluator.commands.watch import Watched, WatchedGrades, files_of, watch

    files = files_of(named)
    watched = Watched(files.paths, files.submission)

    def tell() -> None:
        terminal.tell(f"watching {files.what}: graded at {time.strftime('%H:%M:%S')}, Ctrl-C ends")

    with WatchedGrades(watched.has_changed, terminal.harmless(sys.stderr)) as grades:

        def grade() -> int | None:
            grades.was_given_up = False
            code = guarded(lambda: _grade(form, watched=grades, **named))
            return None if grades.was_given_up else code

        code = watch(watched, grade, tell, click.clear)
    if code == ExitCode.INTERRUPTED:
        terminal.tell("no longer watching")
    return code


_MESSAGE = 300
_OF_THIS_MACHINE = "IX"
"""Findings that no line about a submission has: a missing layer of the sandbox, a cache that stores nothing."""


def _show(card: Scorecard, written_to: Path | None, form: ResultFormat) -> None:
    """Write the card to stdout, and in a workflow also as annotation and summary."""
    from evaluator.files.card_files import card_bytes, file_here
    from evaluator.report.ci.verdicts import verdict_of
    from evaluator.text import one_line

    verdicts = [verdict_of(card, file_here(card.submission.origin))]
    match form:
        case ResultFormat.FULL:
            terminal.show_card(card, written_to)
        case ResultFormat.JSON:
            terminal.emit(card_bytes(card))
        case ResultFormat.CONCISE | ResultFormat.GITHUB:
            workflow.emit_verdicts(verdicts, form)
            for finding in card.findings:
                if finding.code[0] in _OF_THIS_MACHINE:
                    terminal.tell(f"{finding.code} {one_line(finding.message, _MESSAGE)}")
    if terminal.in_workflow():
        from evaluator.report.ci.step_summary import card_markdown

        workflow.publish(verdicts, card_markdown(card), annotated=form is ResultFormat.GITHUB)


def _graded_here(request: "GradeRequest", stuck: "LastResort", *, quiet: bool) -> Scorecard:
    from evaluator.grading import pipeline
    from evaluator.grading.request import stages_of
    from evaluator.report.progress_line import progress_on

    with progress_on(terminal.harmless(sys.stderr), quiet=quiet, stages=stages_of(request.terms)) as progress:
        return pipeline.grade(request, progress, last_resort=stuck)


def _signed(card: Scorecard, key: "SigningKey | None") -> Scorecard:
    from evaluator.signatures.signing import signed  # not before a ready judge is asked

    return signed(card, key)


def _card_at(path: Path) -> Scorecard | None:
    """Read an existing card at the target path; None if the file is missing or not a card."""
    from evaluator.files.card_files import read_card

    try:
        return read_card(path, path.parent)
    except CardError:
        return None


def _tell_replaced(before: Scorecard | None, card: Scorecard, path: Path) -> None:
    """Report a replaced card of another device, size or mode: a path stores one card of a submission."""
    if before is None or _kind(before) == _kind(card):
        return
    was = f"{before.status.value} on {before.device.kind.value}, size {before.problem.size}"
    was += f", mode {before.mode.value}" if before.mode is not card.mode else ""
    terminal.tell(f"replaced: {path} was another grade ({was}); --output FILE keeps both")


def _kind(card: Scorecard) -> tuple[str, str, str]:
    return card.device.kind.value, card.problem.size, card.mode.value


def _tell_replay(before: Scorecard, after: Scorecard) -> None:
    """Report whether a replay had the same result, and which circumstances changed."""
    from evaluator.cards.replay import changed_circumstances, differences

    differing, changed = differences(before, after), changed_circumstances(before, after)
    terminal.tell("replay: same result" if not differing else f"replay: different result: {'; '.join(differing)}")
    if changed:
        terminal.tell(f"replay: changed since then: {', '.join(changed)}")


def _exit_code(card: Scorecard) -> ExitCode:
    match card.status:
        case Status.CORRECT:
            return ExitCode.CORRECT
        case Status.INFRA_ERROR:
            return ExitCode.INFRASTRUCTURE
        case _:
            return ExitCode.NOT_CORRECT


@click.command(cls=WithProjectFile)
@click.argument("submissions", type=click.Path(allow_dash=True))
@click.option(
    "--run",
    required=True,
    type=FOLDER_PATH,
    metavar="DIR",
    help="Folder of the run; repeat the command to resume the run.",
)
@grading_options
@sign_option
@click.option(
    "--jobs",
    "-j",
    type=click.IntRange(1),
    metavar="N",
    show_envvar=True,
    help="Number of concurrent grades.  [default: the device's maximum]",
)
@ray_option
@click.option(
    "--only",
    multiple=True,
    metavar="PATTERN",
    shell_complete=complete_problem,
    help="Grade only submissions to problems with such a name: --only 'level1/*'. Repeatable.",
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Grade only the first N submissions.")
@click.option("--shard", metavar="K/N", help="Grade only part K of N; equal submissions are in the same part.")
@click.option(
    "--retry",
    type=one_of(["infra", "failed"]),
    help="Grade submissions again: infra after failures of the machine, failed for all that are not correct.",
)
@click.option("--fresh", is_flag=True, help="Start over: remove the run's cards.")
@click.option(
    "--fail-fast", is_flag=True, help="Start no further grade after the first submission that is not correct."
)
@click.option(
    "--allow-problem-text",
    is_flag=True,
    help="Accept lines that hold the code of a problem. That code runs outside the sandbox, as the present user.",
)
@click.option("--jsonl", is_flag=True, help="Write one line of JSON per submission to stdout.")
def batch(*, jsonl: bool, **named: Any) -> ExitCode:
    """Grade all SUBMISSIONS into the folder of a run; resumable.

    SUBMISSIONS is a folder of PROBLEM/NAME.py (.txt, .md: a model's answers; or folders), a KernelBench run folder,
    or a file of lines {"problem": ..., "sample": ..., "source": ...}; - reads such lines from stdin. With
    --allow-problem-text, a line may hold its problem: {"problem": {"name": ..., "source": ...}, ...}.
    """
    from evaluator.batch.command import BatchArguments, run_batch

    options = taken_options(named)
    arguments = BatchArguments(**named)
    try:
        lines = terminal.harmless(sys.stdout, is_json=True) if jsonl else None
        tally = run_batch(arguments, options, terminal.harmless(sys.stderr), lines)
    except KeyboardInterrupt:
        terminal.tell("all cards so far are kept; repeat the command to resume")
        raise
    terminal.tell(f"{tally}; next: warpgrade report {arguments.run}")
    return tally.exit_code
