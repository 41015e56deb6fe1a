"""What this machine can do, and what is kept on it."""

import sys

import click

from evaluator.commands import terminal
from evaluator.commands.options import json_option
from evaluator.errors import ExitCode


@click.command(short_help="Say what this machine can do, and what is missing.")
@click.option("--prepare", is_flag=True, help="Make ahead what first grades wait for: runtime, headers, allocators.")
@json_option
def doctor(*, prepare: bool, as_json: bool) -> ExitCode:
    """Say what this machine can and cannot do, and how to get what is missing.

    A tiny submission is graded on each device before it is called ready; the first time that takes minutes.
    """
    from evaluator import doctor, tryout
    from evaluator.report import checkup
    from evaluator.report.live import progress_on

    if prepare:
        with progress_on(sys.stderr) as progress:
            progress.stage("look", "what this machine can do")
            preparations = doctor.prepare(doctor.diagnose().ready, progress)
        if as_json:
            terminal.emit(terminal.json_text(preparations))
        else:
            terminal.show(lambda console: checkup.render_preparations(preparations, console))
        return preparations.exit_code
    with progress_on(sys.stderr) as progress:
        progress.stage("look", "what this machine can do")
        diagnosis = tryout.tried(doctor.diagnose(), progress)
    if as_json:
        terminal.emit(terminal.json_text(diagnosis))
    else:
        terminal.show(lambda console: checkup.render_diagnosis(diagnosis, console))
    return diagnosis.exit_code


_CACHE_EPILOG = """\b
Environment:
  WARPGRADE_CACHE        the folder  [default: ~/.cache/warpgrade]
  WARPGRADE_CACHE_LIMIT  how large it may become: 500MiB, 20GB  [default: 10GiB]
"""


@click.group(epilog=_CACHE_EPILOG)
def cache() -> None:
    """See or clear what is kept of builds.

    Beyond its limit the cache loses what was not used for longest. Nothing is lost with it but time.
    """


@cache.command("info", epilog=_CACHE_EPILOG)
@json_option
def cache_info(*, as_json: bool) -> None:
    """Say where the cache is, how large, and what it holds."""
    from evaluator.build.cache import cache_folder
    from evaluator.build.cache_room import cache_limit_bytes, usage
    from evaluator.report.cache import usage_text

    found = usage(cache_folder(), cache_limit_bytes())
    terminal.emit(terminal.json_text(found) if as_json else usage_text(found))


@cache.command("clear", epilog=_CACHE_EPILOG)
@json_option
def cache_clear(*, as_json: bool) -> None:
    """Remove all that is kept; what a grade reads just now stays."""
    from evaluator.build.cache import cache_folder
    from evaluator.build.cache_room import clear
    from evaluator.report.cache import cleared_text

    cleared = clear(cache_folder())
    terminal.emit(terminal.json_text(cleared) if as_json else cleared_text(cleared))
