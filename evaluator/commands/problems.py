"""See, validate and start problems; start a submission."""

from pathlib import Path

import click

from evaluator.catalog import OWN_PROBLEMS, find_problem, list_problems
from evaluator.commands import terminal
from evaluator.commands.options import complete_problem, json_option, problems_option
from evaluator.errors import ExitCode
from evaluator.records import DeviceKind, SizeName
from evaluator.report.problems import listing_document, listing_text, problem_text


@click.group()
def problems() -> None:
    """See which problems there are."""


@problems.command("list")
@problems_option
@json_option
def list_them(*, problems: Path | None, as_json: bool) -> ExitCode:
    """List the problems by level."""
    listing = list_problems(problems)
    terminal.emit(terminal.json_text(listing_document(listing)) if as_json else listing_text(listing))
    for broken in listing.broken:
        terminal.complain("broken", broken)
    return ExitCode.USAGE if listing.broken else ExitCode.CORRECT


@problems.command("show")
@click.argument("name", shell_complete=complete_problem)
@problems_option
@json_option
def show(*, name: str, problems: Path | None, as_json: bool) -> None:
    """Show what a problem asks for, its sizes and its reference."""
    problem = find_problem(name, problems)
    terminal.emit(terminal.json_text(problem) if as_json else problem_text(problem))


@problems.command("validate")
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_problem)
@problems_option
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
@json_option
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
            terminal.emit(admission_text(admission) + (details_text(admission) if names else ""))
    if as_json:
        terminal.emit(terminal.json_text(found))
    return ExitCode.CORRECT if all(each.admitted for each in found) else ExitCode.NOT_CORRECT


@click.group()
def new() -> None:
    """Start a problem or a submission from a working example."""


@new.command("problem")
@click.argument("name")
@click.option(
    "--problems",
    type=click.Path(file_okay=False, path_type=Path),
    default=OWN_PROBLEMS,
    show_default=True,
    help="The folder in which the problem's own is made.",
)
def new_problem(*, name: str, problems: Path) -> None:
    """Write a problem called NAME, to be graded as it is and changed from there."""
    from evaluator import scaffold

    folder = scaffold.new_problem(name, problems)
    terminal.emit(f"{folder} is written: problem.toml and reference.py\n")
    terminal.emit("it computes an example, a linear layer, ReLU and a division: put your own Model into reference.py\n")
    terminal.emit(f"next: warpgrade new solution {name} --problems {problems}\n")


@new.command("solution")
@click.argument("problem", shell_complete=complete_problem)
@problems_option
@click.option("--language", type=click.Choice(["cuda", "cpp"]), default="cuda", show_default=True, help="The kernel's.")
@click.option("--output", type=click.Path(path_type=Path), metavar="FILE", help="[default: NAME.py, here]")
def new_solution(*, problem: str, problems: Path | None, language: str, output: Path | None) -> None:
    """Write a submission for PROBLEM: correct from the start, with a kernel to be filled in."""
    from evaluator import scaffold
    from evaluator.skeleton import Language

    found = find_problem(problem, problems)
    path = output or Path(f"{found.name.rpartition('/')[2]}.py")
    scaffold.new_solution(found, path, Language(language))
    terminal.emit(f"{path} is written\n")
    terminal.emit(f"next: warpgrade grade {problem} {path}{f' --problems {problems}' if problems else ''}\n")
