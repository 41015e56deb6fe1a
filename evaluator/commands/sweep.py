"""The command sweep."""

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from msgspec.structs import replace

from evaluator.commands import terminal
from evaluator.commands.options import complete_problem, grading_options, json_option, taken_options
from evaluator.errors import CardNotWritten, ExitCode
from evaluator.records import Scorecard, Status

if TYPE_CHECKING:
    from rich.console import Console

    from evaluator.report.sweep import Sweep


@click.command(short_help="Time SUBMISSION over many values of one axis.")
@click.argument("problem", shell_complete=complete_problem)
@click.argument("submission", type=click.Path(allow_dash=True))
@click.option(
    "--axis",
    required=True,
    metavar="NAME=START:STOP:xFACTOR",
    help="Constant of the reference and its values: N=1024:65536:x2, N=128:1024:+128, or N=1,7,64. At most 64 values.",
)
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="File for the picture.")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File for the scorecard.  [default: scorecards/PROBLEM/NAME-by-AXIS.json]",
)
@grading_options
@json_option
@click.option("--quiet", "-q", is_flag=True, help="Show no progress.")
def sweep(*, axis: str, svg: Path | None, output: Path | None, as_json: bool, quiet: bool, **named: Any) -> ExitCode:
    """Grade SUBMISSION at many values of one axis, and draw time, bandwidth and roofline over the axis.

    The submission is built once. Each value is a case with its own checks and times; one scorecard has all. The other
    constants are those of the size, or of the one case that --case names. A value that fails ends no other.
    """
    from evaluator.errors import UsageError
    from evaluator.files.card_files import check_target, write_card, write_whole
    from evaluator.grading.resolved_request import GradeArguments, default_target, request_for
    from evaluator.report.sweep import sweep_document, sweep_of, sweep_svg
    from evaluator.roofline.least_time import roofs_of, work_of
    from evaluator.sizes.cases import ALL, HIDDEN, swept_axis, with_swept_cases

    swept = swept_axis(axis)
    chosen = taken_options(named)
    request = request_for(GradeArguments(**named), chosen)
    if len(request.terms.options.case) > 1 or {ALL, HIDDEN}.intersection(request.terms.options.case):
        raise UsageError("a sweep has the other constants of one case", hint="name one with --case, or a --size")
    problem, names = with_swept_cases(request.terms.problem, request.terms.size, swept)
    options = replace(request.terms.options, size=None, case=names)
    request = replace(request, terms=request.terms._replace(problem=problem, options=options))
    target = output or _named_by_axis(default_target(request), swept.name)
    check_target(target, named=output is not None)

    def stuck(card: Scorecard) -> NoReturn:
        with contextlib.suppress(CardNotWritten):
            write_card(card, target, named=output is not None)
        os._exit(ExitCode.INFRASTRUCTURE)

    from evaluator.grading import pipeline
    from evaluator.grading.request import stages_of
    from evaluator.report.progress_line import progress_on

    with progress_on(terminal.harmless(sys.stderr), quiet=quiet, stages=stages_of(request.terms)) as progress:
        card = pipeline.grade(request, progress, last_resort=stuck)
    write_card(card, target, named=output is not None)
    work = work_of(problem).known
    drawn = sweep_of(card, swept.name, work, roofs_of(problem) if request.terms.gpu is not None else None)
    title = f"{card.submission.name} for {problem.name} on {card.device.name}"
    if svg is not None:
        write_whole(svg, sweep_svg(drawn, title))
    if as_json:
        terminal.emit(terminal.json_text({**sweep_document(drawn), "scorecard": str(target)}))
    else:
        terminal.show(lambda console: _render(drawn, title, card, target, console))
    return {Status.CORRECT: ExitCode.CORRECT, Status.INFRA_ERROR: ExitCode.INFRASTRUCTURE}.get(
        card.status, ExitCode.NOT_CORRECT
    )


def _named_by_axis(card_file: Path, axis: str) -> Path:
    return card_file.with_name(f"{card_file.name.removesuffix('.json')}-by-{axis}.json")


def _render(drawn: "Sweep", title: str, card: Scorecard, target: Path, console: "Console") -> None:
    from evaluator.report.card.measurement import cases_sentence
    from evaluator.report.layout.sheet import Sheet, styled
    from evaluator.report.sweep import sweep_lines

    sheet = Sheet(console)
    sheet.line(sheet.say(title, 160, "bold"))
    parts = [card.status.value.replace("_", " "), cases_sentence(card.cases, sheet.symbols.times)]
    sheet.line(styled(", ".join(filter(None, parts)), ""))
    if card.reason is not None:
        sheet.line(sheet.say(card.reason.message, 300))
    sheet.blank()
    for line in sweep_lines(drawn, sheet.symbols, sheet.text_width):
        sheet.line(styled(f"  {line}", ""))
    sheet.blank()
    sheet.row("Scorecard", sheet.say(target, 300))
    sheet.print()
