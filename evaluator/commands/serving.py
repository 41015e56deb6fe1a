"""The command serve."""

import click

from evaluator.commands import terminal
from evaluator.errors import UsageError
from evaluator.grade_options import AUTO
from evaluator.records import DeviceKind

_EPILOG = """\b
Environment:
  XDG_RUNTIME_DIR  folder of the socket  [default: the cache]
"""
_IDLE_MINUTES = 30.0


@click.command(epilog=_EPILOG, short_help="Keep a judge ready, so that grades start at once.")
@click.option(
    "--device",
    type=click.Choice([AUTO, *(kind.value for kind in DeviceKind)]),
    default=AUTO,
    show_default=True,
    help="Device whose processes start at once; other devices' start with their first grade.",
)
@click.option(
    "--jobs",
    "-j",
    type=click.IntRange(1),
    metavar="N",
    help="Number of concurrent grades, on cuda of builds; always 1 on cpu.  [default: the device's maximum]",
)
@click.option(
    "--idle-minutes",
    type=click.FloatRange(min=0, min_open=True, max=1e6),
    default=_IDLE_MINUTES,
    show_default=True,
    help="Time without a grade after which a process ends and frees its memory.",
)
@click.option("--status", "asks_status", is_flag=True, help="Write the status of the running judge to stdout, as JSON.")
@click.option("--stop", "asks_stop", is_flag=True, help="End the running judge after its current grades.")
def serve(*, device: str, jobs: int | None, idle_minutes: float, asks_status: bool, asks_stop: bool) -> None:
    """Keep a judge ready in the foreground: `warpgrade grade` and programs of the same user then grade faster.

    Only the same user reaches the judge, through a Unix socket. Ctrl-C or --stop ends the judge after its current
    grades; a second Ctrl-C ends the grades too.
    """
    if asks_status and asks_stop:
        raise UsageError("--status and --stop exclude each other")
    if asks_status:
        from evaluator.serve import client

        terminal.emit(terminal.indented(client.status()))
    elif asks_stop:
        from evaluator.serve import client

        client.stop()
        terminal.tell("the ready judge has ended")
    else:
        from evaluator.doctor.default_device import default_device
        from evaluator.serve.grades import Grades
        from evaluator.serve.server import Server

        chosen = default_device() if device == AUTO else DeviceKind(device)
        Server(Grades(jobs), idle_minutes, terminal.tell).run(chosen)
