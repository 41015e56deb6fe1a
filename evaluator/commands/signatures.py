"""The commands keygen and check-card."""

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import click

from evaluator.commands import terminal
from evaluator.commands.options import FILE_PATH, trusted_option
from evaluator.errors import CardError, ExitCode
from evaluator.text import counted, one_line

if TYPE_CHECKING:
    from evaluator.signatures.signing import Trust


@click.command(short_help="Create a key pair for signing scorecards.")
@click.argument("file", metavar="FILE", type=FILE_PATH)
@click.option("--name", default="", metavar="NAME", help="Name of the key's owner, shown with signatures.")
@click.option("--replace", is_flag=True, help="Overwrite an existing key, which is lost.")
def keygen(*, file: Path, name: str, replace: bool) -> None:
    """Create an Ed25519 key pair: FILE signs scorecards, FILE.pub is for distribution.

    `grade --sign FILE` and `batch --sign FILE` sign every card. So does the variable WARPGRADE_SIGNING_KEY: the key
    itself, or its path.
    """
    from evaluator.signatures.keys import make_key

    public = make_key(file, name, replace=replace)
    terminal.emit(f"{public.line}\n")
    click.echo(f"wrote {file} (keep it secret); {file}.pub is {public.fingerprint}", err=True)


@click.command("check-card", short_help="Check scorecards and their signatures.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@trusted_option
def check_card(*, files: tuple[Path, ...], trusted: Path | None) -> ExitCode:
    """Check that each FILE is a consistent scorecard, unchanged since its signature.

    The output names every fault with its field. With --trusted, the check also refuses cards without the signature
    of a trusted key, and replays, whose seeds were known in advance.
    """
    from evaluator.signatures.keys import public_keys
    from evaluator.signatures.signing import Trust

    trust = Trust(None if trusted is None else public_keys(trusted))
    refused = [error for file in files if (error := _refusal(file, trust)) is not None]
    for error in refused[:-1]:
        terminal.complain("error", error)
    if refused:
        raise refused[-1]
    return ExitCode.CORRECT


def _refusal(file: Path, trust: "Trust") -> CardError | None:
    """Check a card and print the result on stdout; return the error of a refused card."""
    from evaluator.files.card_files import INTERVALS_REMARK, read_bytes, version_of
    from evaluator.schema import faults_of, is_earlier

    try:
        content = read_bytes(file)
        if faults := faults_of(content, file):
            terminal.emit("".join(f"{one_line(fault, 300)}\n" for fault in faults))
            return CardError(f"{file} is not a valid scorecard: {counted(len(faults), 'fault')}")
        inspected = trust.look(content)
    except CardError as error:
        return error
    if (expected := _misplaced_from(file, content)) is not None:
        return CardError(f"{file} is at the place of another submission's card; its own place in the run is {expected}")
    if inspected.refused is not None:
        return CardError(f"{file} {inspected.refused}")
    remark = ""
    if is_earlier(version := version_of(content)):
        remark = f"  of schema version {version}: {INTERVALS_REMARK}\n"
    terminal.emit(f"{file} is a valid scorecard\n  {inspected}\n{remark}")
    return None


def _misplaced_from(file: Path, content: bytes) -> PurePosixPath | None:
    """Return the place of a card in its run, if the card is at another place of a run."""
    from evaluator.files.card_files import card_of, card_place

    path = file.resolve()
    cards = next(
        (parent for parent in path.parents if parent.name == "cards" and (parent.parent / "manifest.json").is_file()),
        None,
    )
    card = card_of(content, file)
    expected_path = card_place(card.problem.name, card.submission.name)
    return None if cards is None or path.relative_to(cards) == Path(expected_path) else expected_path
