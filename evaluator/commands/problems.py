"""Commands about problems: list, show, get, validate, and new."""

import shlex
from pathlib import Path

import click
import msgspec

from evaluator.catalog import OWN_PROBLEMS, find_problem, list_problems
from evaluator.commands import terminal
from evaluator.commands.options import FOLDER_PATH, complete_problem, json_option, one_of, problems_option
from evaluator.errors import ExitCode, ProblemError
from evaluator.records import DeviceKind, SizeName
from evaluator.report.problems import listing_document, listing_text, problem_text

_size_option = click.option(
    "--size",
    type=one_of([size.value for size in SizeName]),
    help="Size of the problem.  [default: small, otherwise full]",
)
_device_option = click.option(
    "--device",
    type=one_of([DeviceKind.CPU.value, DeviceKind.CUDA.value]),
    default=DeviceKind.CPU.value,
    show_default=True,
    help="Device that computes the reference.",
)


@click.group()
def problems() -> None:
    """List, show, get and validate problems."""


@problems.command("list")
@problems_option
@json_option
def list_them(*, problems: Path | None, as_json: bool) -> ExitCode:
    """List the problems by level."""
    listing = list_problems(problems)
    terminal.emit(terminal.json_text(listing_document(listing)) if as_json else listing_text(listing))
    for broken in listing.broken:
        terminal.complain("broken", ProblemError(broken.message))  # `problems show` has the hint
    return ExitCode.USAGE if listing.broken else ExitCode.CORRECT


@problems.command("show", short_help="Show a problem and its reference.")
@click.argument("name", shell_complete=complete_problem)
@problems_option
@json_option
def show(*, name: str, problems: Path | None, as_json: bool) -> None:
    """Show a problem's task, sizes and reference, and the bytes and FLOP of a call.

    The bytes and FLOP are counted once: a process in the sandbox runs the problem's code on tensors without memory.
    """
    from evaluator.report.problem_work import ProblemWork, work_document, work_text
    from evaluator.roofline.least_time import roofs_of, stated, work_of

    problem = find_problem(name, problems)
    counted_work = work_of(problem)
    stated_work = {size: stated(problem, size, call_work) for size, call_work in counted_work.known.items()}
    work = ProblemWork(stated_work, counted_work.unknown, roofs_of(problem), problem.precision)
    if as_json:
        terminal.emit(terminal.json_text(msgspec.to_builtins(problem) | {"work": work_document(work)}))
    else:
        terminal.emit(problem_text(problem, work_text(work)))


@problems.command("get", short_help="Fetch the problems of KernelBench.")
@click.argument("name", type=click.Choice(["kernelbench"]))
@click.option(
    "--from", "source", metavar="SOURCE", help="A clone, an archive or its address.  [default: the repository]"
)
@click.option(
    "--output", type=FOLDER_PATH, default=Path("kernelbench"), show_default=True, metavar="DIR", help="Folder to fill."
)
def get(*, name: str, source: str | None, output: Path) -> None:
    """Write KernelBench's 250 problems of levels 1 to 3 to a folder for --problems.

    They come from the public repository at a fixed commit, and each file is checked by its hash. Without a network,
    --from names a clone that was made elsewhere.
    """
    from evaluator.catalog.kernelbench_files import ARCHIVE, COMMIT, get_files

    count = get_files(source or ARCHIVE, output)
    terminal.emit(f"{output}: {count} problems of {name}, as at commit {COMMIT[:12]}\n")
    terminal.emit(f"next: warpgrade batch runs/NAME --run NAME --problems {shlex.quote(str(output))}\n")


@problems.command("validate", short_help="Find bad submissions that pass.")
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_problem)
@problems_option
@_size_option
@_device_option
@json_option
def validate_them(
    *, names: tuple[str, ...], problems: Path | None, size: str | None, device: str, as_json: bool
) -> ExitCode:
    """Test the problems NAME with bad submissions; report which ones pass, and what to change.

    Without NAME the command validates all problems. A problem that passes a bad submission is weak: exit status 1.
    """
    from evaluator.admission.validation import validate
    from evaluator.report.problems import admission_text, details_text

    admissions = []
    chosen = None if size is None else SizeName(size)
    for admission in validate(names, problems, chosen, DeviceKind(device)):
        admissions.append(admission)
        if not as_json:
            terminal.emit(admission_text(admission) + (details_text(admission) if names else ""))
    if as_json:
        terminal.emit(terminal.json_text(admissions))
    return ExitCode.CORRECT if all(admission.admitted for admission in admissions) else ExitCode.NOT_CORRECT


@click.group()
def new() -> None:
    """Start a problem or a submission from a working example."""


@new.command("problem", short_help="Write a problem to start from.")
@click.argument("name")
@click.option(
    "--problems",
    type=FOLDER_PATH,
    default=OWN_PROBLEMS,
    show_default=True,
    help="Parent folder of the new problem.",
)
def new_problem(*, name: str, problems: Path) -> None:
    """Write a working problem called NAME as a starting point."""
    from evaluator.scaffold import new_files

    folder = new_files.new_problem(name, problems)
    terminal.emit(f"wrote {folder}: problem.toml and reference.py\n")
    terminal.emit("the example is a linear layer, ReLU and a division: put your own Model into reference.py\n")
    terminal.emit(f"check: warpgrade problems validate {name} --problems {problems}\n")
    terminal.emit(f"next: warpgrade new solution {name} --problems {problems}\n")


@new.command("solution", short_help="Write a template solution of PROBLEM.")
@click.argument("problem", shell_complete=complete_problem)
@problems_option
@click.option(
    "--language", type=one_of(["cuda", "cpp"]), default="cuda", show_default=True, help="Language of the kernel."
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File to write.  [default: NAME.py in this folder]",
)
@click.option("--agent", is_flag=True, help="Also write AGENTS.md beside the file: how an agent grades and mends it.")
def new_solution(*, problem: str, problems: Path | None, language: str, output: Path | None, agent: bool) -> None:
    """Write a correct submission for PROBLEM, with a kernel to fill in."""
    from evaluator.scaffold import new_files
    from evaluator.scaffold.first_solution import SolutionLanguage
    from evaluator.scaffold.new_files import agents_page

    known_problem = find_problem(problem, problems)
    path = output or Path(f"{known_problem.name.rpartition('/')[2]}.py")
    page = agents_page(known_problem, path, problems) if agent else None
    new_files.new_solution(known_problem, path, SolutionLanguage(language), agents=page)
    terminal.emit(f"wrote {path}\n")
    if agent:
        terminal.emit(f"wrote {path.parent / new_files.AGENTS_PAGE}\n")
    terminal.emit(f"next: warpgrade grade {problem} {path}{f' --problems {problems}' if problems else ''}\n")
