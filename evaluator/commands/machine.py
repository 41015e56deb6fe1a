"""Commands about this machine and its cache, and reference texts: findings by code, schemas by name, completion."""

import sys

import click

from evaluator.commands import terminal
from evaluator.commands.options import complete_code, json_option
from evaluator.errors import ExitCode, UsageError
from evaluator.findings import ENTRIES
from evaluator.findings.lookup import code_named


@click.command(short_help="Check this machine: usable devices, missing parts, and fixes.")
@click.option("--deep", is_flag=True, help="Also grade a tiny submission on each device: proof that grades work.")
@click.option(
    "--prepare", is_flag=True, help="Build in advance what a first grade needs: runtime, headers, allocators."
)
@json_option
def doctor(*, deep: bool, prepare: bool, as_json: bool) -> ExitCode:
    """Check this machine: usable devices, missing parts, and fixes.

    With --deep a device is ready only after the grade of a tiny submission. The first such grade builds parts, once on
    this machine: about half a minute for each device without other work.
    """
    if deep and prepare:
        raise UsageError("--deep and --prepare are separate commands", hint="give one of them")
    from evaluator.doctor import diagnosis as doctor
    from evaluator.doctor import sample_grade
    from evaluator.report import machine
    from evaluator.report.progress_line import progress_on

    with progress_on(sys.stderr) as progress:
        progress.stage("look", "this machine")
        diagnosis = doctor.diagnose()
        preparations = doctor.prepare(diagnosis.ready, progress) if prepare else None
        if deep:
            diagnosis = sample_grade.tried(diagnosis, progress)
    if as_json:
        terminal.emit(terminal.json_text(preparations or diagnosis))
    elif preparations is None:
        terminal.show(lambda console: machine.render_diagnosis(diagnosis, console))
    else:
        terminal.show(lambda console: machine.render_preparations(preparations, console))
    return (preparations or diagnosis).exit_code


_CACHE_EPILOG = """\b
Environment:
  WARPGRADE_CACHE        folder of the cache  [default: ~/.cache/warpgrade]
  WARPGRADE_CACHE_LIMIT  largest size: 500MiB, 20GB  [default: 10GiB]
"""


@click.group(epilog=_CACHE_EPILOG)
def cache() -> None:
    """Show or clear the build cache.

    Beyond the limit the cache evicts the least recently used entries. Evicted builds are built again.
    """


@cache.command("info", epilog=_CACHE_EPILOG)
@json_option
def cache_info(*, as_json: bool) -> None:
    """Show the cache's folder, size and contents."""
    from evaluator.cache.eviction import cache_limit_bytes, usage
    from evaluator.paths import cache_folder
    from evaluator.report.cache import usage_text

    cache_usage = usage(cache_folder(), cache_limit_bytes())
    terminal.emit(terminal.json_text(cache_usage) if as_json else usage_text(cache_usage))


@cache.command("clear", epilog=_CACHE_EPILOG)
@json_option
def cache_clear(*, as_json: bool) -> None:
    """Remove all entries, except those that a running grade uses."""
    from evaluator.cache.eviction import clear
    from evaluator.paths import cache_folder
    from evaluator.report.cache import cleared_text

    cleared = clear(cache_folder())
    terminal.emit(terminal.json_text(cleared) if as_json else cleared_text(cleared))


SCHEMAS = ["scorecard", "problem", "run"]
"""Values of evaluator.schema.SchemaName, without importing the module for a help text; a test compares the two."""


@click.command()
@click.argument("name", type=click.Choice(SCHEMAS))
def schema(*, name: str) -> None:
    """Print the JSON Schema of a document."""
    from evaluator.schema import SchemaName, schema_bytes

    terminal.emit(schema_bytes(SchemaName(name)))


@click.command()
@click.argument("code", required=False, shell_complete=complete_code)
def explain(*, code: str | None) -> None:
    """Explain the finding CODE, or list all codes."""
    if code is None:
        terminal.emit("".join(f"{listed_code.value}  {entry.title}\n" for listed_code, entry in ENTRIES.items()))
        return
    known_code = code_named(code, listing="`warpgrade explain` lists all codes")
    entry = ENTRIES[known_code]
    paragraphs = [f"{known_code.value}: {entry.title}", entry.explanation, f"Next: {entry.next_step}"]
    terminal.emit("\n\n".join(click.wrap_text(paragraph, width=80) for paragraph in paragraphs) + "\n")


_COMPLETION_EPILOG = """\b
Use:
  bash  eval "$(warpgrade completion bash)"  in ~/.bashrc
  zsh   eval "$(warpgrade completion zsh)"   in ~/.zshrc, after compinit
  fish  warpgrade completion fish | source   in ~/.config/fish/config.fish
"""


@click.command(epilog=_COMPLETION_EPILOG)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(*, shell: str) -> None:
    """Print the completion script for a shell."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - for the type checker: click has all three
    root = click.get_current_context().find_root()
    terminal.emit(kind(root.command, {}, "warpgrade", "_WARPGRADE_COMPLETE").source())
