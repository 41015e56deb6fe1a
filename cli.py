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

from evaluator.catalog import find_problem, list_problems
from evaluator.errors import CardError, CardNotWritten, ExitCode, UsageError, WarpgradeError
from evaluator.findings import ENTRIES, Code
from evaluator.records import BaselineKind, DeviceKind, Scorecard, SizeName, Status, ToleranceRule
from evaluator.report.problems import listing_document, listing_text, problem_text
from evaluator.report.text import counted, one_line, printable
from evaluator.version import __version__

if TYPE_CHECKING:
    from rich.console import Console

    from evaluator.report.regrade import Change

_SCHEMAS = ["scorecard", "problem", "run"]  # evaluator.schema.SchemaName; a test holds the two together


# The first character keeps click from filling the lines.
_EXIT_STATUS = """\b
Exit status:
  0    the submission is correct
  1    it is not, or no verdict was possible on this device
  2    the command, or a file that it was given, is wrong
  3    this machine failed; nothing is said about the submission
  130  interrupted
"""


def _seconds(_: click.Context, __: click.Parameter, value: float | None) -> float | None:
    """Accept a length of time: a finite number of seconds above zero."""
    if value is not None and not (math.isfinite(value) and value > 0):
        raise click.BadParameter(f"{value} is not a length of time")
    return value


def _share(_: click.Context, __: click.Parameter, value: float | None) -> float | None:
    """Accept a share: above 0, at most 1."""
    if value is not None and not 0 < value <= 1:
        raise click.BadParameter(f"{value} is not a share above 0 and at most 1")
    return value


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


_GRADING_OPTIONS = (
    click.option(
        "--device",
        type=click.Choice(["auto", *(kind.value for kind in DeviceKind)]),
        default="auto",
        show_default=True,
        help="Where the submission is run.",
    ),
    click.option(
        "--gpu", metavar="GPU", help="Which GPU, by index or UUID; runners see no other.  [default: the first]"
    ),
    click.option(
        "--size",
        type=click.Choice([size.value for size in SizeName]),
        help="Which of the problem's sizes.  [default: full on cuda, else small]",
    ),
    _problems_option,
    click.option(
        "--tolerance",
        type=click.Choice([rule.value for rule in ToleranceRule]),
        help="How far an output may be off.  [default: measured]",
    ),
    click.option(
        "--sandbox",
        type=click.Choice(["full", "none"]),
        default="full",
        show_default=True,
        help="The walls around the submission; none is for your own code only.",
    ),
    click.option("--strict", is_flag=True, help="Refuse to grade where a wall of the sandbox is missing."),
    click.option(
        "--require-own-kernel",
        type=float,
        callback=_share,
        metavar="SHARE",
        help="Reject what does less than this share of its work (above 0, at most 1) in kernels of its own.",
    ),
    click.option(
        "--baseline",
        multiple=True,
        type=click.Choice([kind.value for kind in BaselineKind if kind is not BaselineKind.SUBMISSION]),
        help="Time this form of the reference too, with TF32 as PyTorch has it and as the problem says. Repeatable.",
    ),
    click.option(
        "--timeout", type=float, callback=_seconds, metavar="SECONDS", help="The limit of each stage but the build."
    ),
    click.option(
        "--build-timeout",
        type=float,
        callback=_seconds,
        metavar="SECONDS",
        default=600.0,
        show_default=True,
        help="The limit of one extension's compilation.",
    ),
)


def _grading_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give `command` the options that say how a submission is graded."""
    for option in reversed(_GRADING_OPTIONS):
        command = option(command)
    return command


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "WARPGRADE"}, epilog=_EXIT_STATUS
)
@click.version_option(__version__, prog_name="warpgrade", message="%(prog)s %(version)s")
def warpgrade() -> None:
    """Grade GPU kernels written against PyTorch references."""


@warpgrade.command()
@click.argument("problem", required=False, shell_complete=_complete_problem)
@click.argument("submission", required=False, type=click.Path(allow_dash=True))
@_grading_options
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where the scorecard is written.  [default: scorecards/PROBLEM/NAME.json]",
)
@_json_option
@click.option(
    "--speedup-of",
    type=click.Path(),
    metavar="FILE",
    help="Time another submission too, and say how much faster this one is.",
)
@click.option("--profile", is_flag=True, help="Run it once more, untimed, to see in which kernels the time goes.")
@click.option(
    "--replay",
    type=click.Path(path_type=Path),
    metavar="CARD",
    help="Grade what this scorecard holds again, with its seeds.",
)
@click.option("--quiet", "-q", is_flag=True, help="Show no progress.")
def grade(
    *,
    output: Path | None,
    as_json: bool,
    quiet: bool,
    **wish: Any,
) -> ExitCode:
    """Grade SUBMISSION against PROBLEM and write its scorecard.

    PROBLEM is a name that `warpgrade problems list` shows, or a path. SUBMISSION is a Python file that defines
    ModelNew, or the answer of a language model that holds one in a fenced block; - reads stdin.
    With --replay CARD both may be left out.
    """
    from evaluator import pipeline
    from evaluator.report.live import progress_on
    from evaluator.request import Wish, default_target, request_for
    from evaluator.store import card_bytes, check_target, write_card

    request = request_for(Wish(**wish))
    target = output or default_target(request)
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
    if request.replay is not None:
        _tell_replay(request.replay, card)
    if not_written is not None:
        raise not_written
    return _exit_code(card)


def _tell_replay(before: Scorecard, after: Scorecard) -> None:
    """Say whether a replay came out the same, and if not, what else is not as it was."""
    from evaluator.replay import changed_circumstances, differences

    found, changed = differences(before, after), changed_circumstances(before, after)
    click.echo("replay: came out the same" if not found else f"replay: differs: {'; '.join(found)}", err=True)
    if changed:
        click.echo(f"replay: not as it was then: {', '.join(changed)}", err=True)


def _exit_code(card: Scorecard) -> ExitCode:
    match card.status:
        case Status.CORRECT:
            return ExitCode.CORRECT
        case Status.INFRA_ERROR:
            return ExitCode.INFRASTRUCTURE
        case _:
            return ExitCode.NOT_CORRECT


@warpgrade.command()
@click.argument("submissions", type=click.Path(allow_dash=True))
@click.option(
    "--run",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="The run's folder; the same command on it goes on.",
)
@_grading_options
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
def batch(*, jsonl: bool, **wish: Any) -> ExitCode:
    """Grade all SUBMISSIONS into the folder of a run.

    SUBMISSIONS is a folder of PROBLEM/NAME.py (or .txt, .md: answers of a language model), a run folder of
    KernelBench, or a file of lines {"problem": ..., "sample": ..., "source": ...}; - reads such lines from stdin.
    """
    from evaluator.batch.command import BatchWish, run_batch

    try:
        tally = run_batch(BatchWish(**wish), sys.stderr, sys.stdout if jsonl else None)
    except KeyboardInterrupt:
        click.echo("every card so far is kept; the same command goes on", err=True)
        raise
    click.echo(f"{tally}; next: warpgrade report {wish['run']}", err=True)
    return tally.exit_code


_run_argument = click.Path(exists=True, file_okay=False, path_type=Path)


@warpgrade.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=_run_argument)
@_json_option
@click.option("--csv", "as_csv", is_flag=True, help="Write CSV to stdout: all, each level, each problem.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Write Markdown to stdout.")
@click.option("--junit", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write JUnit XML there.")
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write one self-contained page there.",
)
@click.option(
    "--kernelbench",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write that benchmark's levelN/eval_results.json there.",
)
def report(
    *,
    runs: tuple[Path, ...],
    as_json: bool,
    as_csv: bool,
    as_markdown: bool,
    junit: Path | None,
    html: Path | None,
    kernelbench: Path | None,
) -> ExitCode:
    """Say how many submissions of RUN are built, correct and fast, by level and problem.

    Several runs are the parts of one that was shared out. What has no card counts as handed in and not correct.
    """
    from evaluator.batch import reporting
    from evaluator.batch.results import read_runs
    from evaluator.report import batch as said
    from evaluator.report.summary import sections

    if as_json + as_csv + as_markdown > 1:
        raise UsageError("--json, --csv and --markdown all write to stdout", hint="choose one of them")
    results = read_runs(runs)
    summaries = sections(results.samples, results.asked)
    if junit is not None:
        reporting.write_junit(results, junit)
    if html is not None:
        reporting.write_html(results, html)
    if kernelbench is not None:
        for path in reporting.write_kernelbench(results, kernelbench):
            click.echo(f"{path} is written", err=True)
    if as_json:
        _emit(_json(said.document(summaries)))
    elif as_csv:
        _emit(said.csv_text(summaries))
    elif as_markdown:
        _emit(said.markdown(summaries))
    else:
        _show(lambda console: said.render(summaries, console))
    for broken in results.broken:
        _complain("broken", broken)
    return ExitCode.INFRASTRUCTURE if results.broken else ExitCode.CORRECT


@warpgrade.command()
@click.argument("before", metavar="RUN_A", type=_run_argument)
@click.argument("after", metavar="RUN_B", type=_run_argument)
@click.option(
    "--fail-on",
    multiple=True,
    metavar="RULE",
    help="Exit with 1 where RUN_B is worse: speedup:-5%, correct:-2% (beyond chance), or status (any).",
)
@_json_option
def compare(*, before: Path, after: Path, fail_on: tuple[str, ...], as_json: bool) -> ExitCode:
    """Compare the submissions that two runs share: which broke, which were mended, and how much faster they are."""
    from evaluator.batch.results import compare_runs
    from evaluator.report.compare import failures, parse_rule
    from evaluator.report.comparison import comparison_document, render_comparison

    rules = [parse_rule(rule) for rule in fail_on]
    comparison = compare_runs(before, after)
    failed = failures(comparison, rules)
    if as_json:
        _emit(_json(comparison_document(comparison, failed)))
    else:
        _show(lambda console: render_comparison(comparison, console))
    for why in failed:
        click.echo(f"failed: {why}", err=True)
    return ExitCode.NOT_CORRECT if failed else ExitCode.CORRECT


@warpgrade.command()
@click.argument("run", metavar="RUN", type=_run_argument)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write the cards as they are now to a new run there.",
)
@_json_option
def regrade(*, run: Path, output: Path | None, as_json: bool) -> ExitCode:
    """Draw verdicts and statistics of RUN again, from what its cards hold; say what is concluded otherwise.

    Nothing is built or run. Exit status 1 where a verdict differs.
    """
    from evaluator.batch.regrading import regrade as again

    found = again(run, output)
    if as_json:
        _emit(_json({"version": 1, "cards": found.cards, "changes": [each._asdict() for each in found.changes]}))
    else:
        _emit("".join(f"{each.problem}/{each.name}  {_changed(each)}\n" for each in found.changes))
        _emit(f"{counted(found.cards, 'card')}, {counted(len(found.changes), 'difference')}\n")
    for broken in found.broken:
        _complain("broken", broken)
    if found.broken:
        return ExitCode.INFRASTRUCTURE
    return ExitCode.NOT_CORRECT if any(each.field == "status" for each in found.changes) else ExitCode.CORRECT


def _changed(change: "Change") -> str:
    before, after = (f"{each:.4g}" if isinstance(each, float) else str(each) for each in (change.before, change.after))
    return one_line(f"{change.field} {before} -> {after}", 120)


@warpgrade.group()
def problems() -> None:
    """See which problems there are."""


@problems.command("list")
@_problems_option
@_json_option
def list_them(*, problems: Path | None, as_json: bool) -> ExitCode:
    """List the problems by level."""
    listing = list_problems(problems)
    _emit(_json(listing_document(listing)) if as_json else listing_text(listing))
    for broken in listing.broken:
        _complain("broken", broken)
    return ExitCode.USAGE if listing.broken else ExitCode.CORRECT


@problems.command("show")
@click.argument("name", shell_complete=_complete_problem)
@_problems_option
@_json_option
def show(*, name: str, problems: Path | None, as_json: bool) -> None:
    """Show what a problem asks for, its sizes and its reference."""
    problem = find_problem(name, problems)
    _emit(_json(problem) if as_json else problem_text(problem))


@problems.command("validate")
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=_complete_problem)
@_problems_option
@click.option(
    "--size", type=click.Choice([size.value for size in SizeName]), help="At which size.  [default: small, else full]"
)
@click.option(
    "--device",
    type=click.Choice([DeviceKind.CPU.value, DeviceKind.CUDA.value]),
    default=DeviceKind.CPU.value,
    show_default=True,
    help="Where the reference is computed.",
)
@click.option("--write", is_flag=True, help="Decide which value profiles are used, and write profiles.lock.toml.")
@_json_option
def validate_them(
    *, names: tuple[str, ...], problems: Path | None, size: str | None, device: str, write: bool, as_json: bool
) -> ExitCode:
    """Say which bad submissions the problems NAME would let through, and what to change.

    Without a NAME all problems are looked at. A problem that lets one through is weak: the exit status is 1.
    """
    from evaluator.report.admission import admission_text, details_text
    from evaluator.validation import validate

    found = []
    chosen = None if size is None else SizeName(size)
    for admission in validate(names, problems, chosen, DeviceKind(device), write=write):
        found.append(admission)
        if not as_json:
            _emit(admission_text(admission) + (details_text(admission) if names else ""))
    if as_json:
        _emit(_json(found))
    return ExitCode.CORRECT if all(each.admitted for each in found) else ExitCode.NOT_CORRECT


@warpgrade.command()
@click.argument("name", type=click.Choice(_SCHEMAS))
def schema(*, name: str) -> None:
    """Print the JSON Schema of a document."""
    from evaluator.schema import SchemaName, schema_bytes

    _emit(schema_bytes(SchemaName(name)))


@warpgrade.command("show")
@click.argument("file", metavar="CARD", type=click.Path(path_type=Path))
@click.option(
    "--svg",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write a picture of both sides' samples to this file as well.",
)
def show_card(*, file: Path, svg: Path | None) -> None:
    """Show the scorecard in the file CARD again, and how the samples of both sides are distributed."""
    from evaluator.store import read_card

    card = read_card(file)
    if svg is not None:
        _draw(card, svg)
    _show_card(card, file, with_samples=True)


def _draw(card: Scorecard, path: Path) -> None:
    from evaluator.report.picture import svg_bytes

    if card.timing is None:
        raise UsageError("there is no picture of this card: nothing was timed", hint="leave --svg out")
    try:
        path.write_bytes(svg_bytes(card, card.timing))
    except OSError as error:
        raise UsageError(f"no picture can be written to {path}: {error.strerror}") from error


@warpgrade.command("check-card")
@click.argument("file", type=click.Path(path_type=Path))
def check_card(*, file: Path) -> ExitCode:
    """Check that FILE is a scorecard; name every fault with its place."""
    from evaluator.schema import check_card as faults_of

    faults = faults_of(file)
    if faults:
        _emit("".join(f"{one_line(fault, 300)}\n" for fault in faults))
        raise CardError(f"{file} is not a valid scorecard: {counted(len(faults), 'fault')}")
    _emit(f"{file} is a valid scorecard\n")
    return ExitCode.CORRECT


@warpgrade.group()
def new() -> None:
    """Start a problem or a submission from a working example."""


@new.command("problem")
@click.argument("name")
@click.option(
    "--problems",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("problems"),
    show_default=True,
    help="The folder in which the problem's own is made.",
)
def new_problem(*, name: str, problems: Path) -> None:
    """Write a problem called NAME, to be graded as it is and changed from there."""
    from evaluator import scaffold

    folder = scaffold.new_problem(name, problems)
    _emit(f"{folder} is written: problem.toml and reference.py\n")
    _emit(f"next: warpgrade new solution {name} --problems {problems}\n")


@new.command("solution")
@click.argument("problem", shell_complete=_complete_problem)
@_problems_option
@click.option("--language", type=click.Choice(["cuda", "cpp"]), default="cuda", show_default=True, help="The kernel's.")
@click.option("--output", type=click.Path(path_type=Path), metavar="FILE", help="[default: NAME.py, here]")
def new_solution(*, problem: str, problems: Path | None, language: str, output: Path | None) -> None:
    """Write a submission for PROBLEM: correct from the start, with a kernel to be filled in."""
    from evaluator import scaffold
    from evaluator.skeleton import Language

    found = find_problem(problem, problems)
    path = output or Path(f"{found.name.rpartition('/')[2]}.py")
    scaffold.new_solution(found, path, Language(language))
    _emit(f"{path} is written\n")
    _emit(f"next: warpgrade grade {problem} {path}{f' --problems {problems}' if problems else ''}\n")


@warpgrade.command()
@click.option("--prepare", is_flag=True, help="Make ahead what first grades wait for: runtime, headers, allocators.")
@_json_option
def doctor(*, prepare: bool, as_json: bool) -> ExitCode:
    """Say what this machine can and cannot do, and how to get what is missing."""
    from evaluator import doctor
    from evaluator.report import checkup
    from evaluator.report.live import progress_on

    if prepare:
        with progress_on(sys.stderr) as progress:
            progress.stage("look", "what this machine can do")
            preparations = doctor.prepare(doctor.diagnose().ready, progress)
        if as_json:
            _emit(_json(preparations))
        else:
            _show(lambda console: checkup.render_preparations(preparations, console))
        return preparations.exit_code
    diagnosis = doctor.diagnose()
    if as_json:
        _emit(_json(diagnosis))
    else:
        _show(lambda console: checkup.render_diagnosis(diagnosis, console))
    return diagnosis.exit_code


_CACHE_EPILOG = """\b
Environment:
  WARPGRADE_CACHE        the folder  [default: ~/.cache/warpgrade]
  WARPGRADE_CACHE_LIMIT  how large it may become: 500MiB, 20GB  [default: 10GiB]
"""


@warpgrade.group(epilog=_CACHE_EPILOG)
def cache() -> None:
    """See or clear what is kept of builds.

    Beyond its limit the cache loses what was not used for longest. Nothing is lost with it but time.
    """


@cache.command("info", epilog=_CACHE_EPILOG)
@_json_option
def cache_info(*, as_json: bool) -> None:
    """Say where the cache is, how large, and what it holds."""
    from evaluator.build.cache import cache_folder
    from evaluator.build.cache_room import cache_limit_bytes, usage
    from evaluator.report.cache import usage_text

    found = usage(cache_folder(), cache_limit_bytes())
    _emit(_json(found) if as_json else usage_text(found))


@cache.command("clear", epilog=_CACHE_EPILOG)
@_json_option
def cache_clear(*, as_json: bool) -> None:
    """Remove all that is kept; what a grade reads just now stays."""
    from evaluator.build.cache import cache_folder
    from evaluator.build.cache_room import clear
    from evaluator.report.cache import cleared_text

    cleared = clear(cache_folder())
    _emit(_json(cleared) if as_json else cleared_text(cleared))


@warpgrade.command()
@click.argument("code", required=False)
def explain(*, code: str | None) -> None:
    """Explain the CODE of a finding, or name them all."""
    if code is None:
        _emit("".join(f"{each.value}  {entry.title}\n" for each, entry in ENTRIES.items()))
        return
    try:
        wanted = Code(code.upper())
    except ValueError as error:
        near = difflib.get_close_matches(code.upper(), [each.value for each in Code], n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else "`warpgrade explain` names them all"
        raise UsageError(f"there is no finding {one_line(code, 40)!r}", hint=hint) from error
    entry = ENTRIES[wanted]
    paragraphs = [f"{wanted.value}: {entry.title}", entry.meaning, f"Next: {entry.next_step}"]
    _emit("\n\n".join(click.wrap_text(paragraph, width=80) for paragraph in paragraphs) + "\n")


def _show_card(card: Scorecard, written_to: Path | None, *, with_samples: bool = False) -> None:
    from evaluator.report.terminal import render_card

    _show(lambda console: render_card(card, console, written_to, with_samples=with_samples))


def _show(render: "Callable[[Console], None]") -> None:
    """Draw on stdout. It is drawn in memory first, so that a closed pipe cannot cut into it."""
    from rich.console import Console

    console = Console(file=sys.stdout, highlight=False)
    with console.capture() as drawn:
        render(console)
    _emit(drawn.get())


def _json(value: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def _emit(content: str | bytes) -> None:
    """Write to stdout. A reader that went away (`| head`) is no error, and changes no verdict."""
    if isinstance(content, str):
        encoding = sys.stdout.encoding or "ascii"
        content = content.encode(encoding, "backslashreplace").decode(encoding)
    try:
        click.echo(content, nl=False)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes stdout once more when it ends; give it somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(what: str, error: WarpgradeError) -> None:
    encoding = sys.stderr.encoding or "ascii"
    click.echo(f"{click.style(what, fg='red', bold=True)}: {printable(error.message, encoding)}", err=True)
    if error.hint:
        click.echo(f"  hint: {printable(error.hint, encoding)}", err=True)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; give its exit code. `arguments` are the process's own where None."""
    try:
        code = warpgrade.main(arguments, prog_name="warpgrade", standalone_mode=False)
    except WarpgradeError as error:
        _complain("error", error)
        return error.exit_code
    except click.Abort:
        click.echo("interrupted", err=True)
        return ExitCode.INTERRUPTED
    except click.ClickException as error:
        error.show()
        return ExitCode.USAGE
    except Exception:  # noqa: BLE001 - Python's own exit code, 1, would read as a verdict
        traceback.print_exc()
        click.echo("error: this is a fault in Warpgrade; it says nothing about the submission", err=True)
        return ExitCode.INFRASTRUCTURE
    return int(code or ExitCode.CORRECT)


def main() -> None:
    """Run the command that the process was started with."""
    sys.exit(run())


if __name__ == "__main__":
    main()
