"""The commands serve, token and mcp."""

import contextlib
import sys
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from evaluator.commands import terminal
from evaluator.commands.options import (
    FILE_PATH,
    FOLDER_PATH,
    grading_options,
    one_of,
    options_besides_device,
    ray_option,
    sign_option,
    taken_options,
)
from evaluator.errors import UsageError
from evaluator.grade_options import AUTO
from evaluator.records import DeviceKind, SandboxMode

_EPILOG = """\b
Environment:
  XDG_RUNTIME_DIR  folder of the socket  [default: the cache]
  XDG_STATE_HOME   folder of the HTTP service's state  [default: ~/.local/state]
"""
_IDLE_MINUTES = 30.0
_KEEP_DAYS = 7.0
_tokens_option = partial(click.option, "--tokens", type=FILE_PATH, metavar="FILE")
_OF_BOTH = frozenset({"device", "jobs", "http"})
_OF_THE_JUDGE = frozenset({"idle_minutes", "asks_status", "asks_stop"})


@click.command(epilog=_EPILOG, short_help="Keep a judge ready, so that grades start at once.")
@click.option(
    "--device",
    type=one_of([AUTO, *(kind.value for kind in DeviceKind)]),
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
@click.option(
    "--http",
    metavar="HOST:PORT",
    help="Serve clients with tokens over HTTP instead. The options below are for this service only.",
)
@click.option(
    "--state",
    type=FOLDER_PATH,
    metavar="DIR",
    help="Folder of queue and cards.  [default: warpgrade/service in XDG_STATE_HOME]",
)
@ray_option
@_tokens_option(help="File of `warpgrade token`.  [default: the file `tokens` in the state folder]")
@click.option(
    "--keep-days",
    type=click.FloatRange(min=0, min_open=True, max=36500),
    default=_KEEP_DAYS,
    show_default=True,
    help="Time after which a finished grade and its card are deleted.",
)
@click.option(
    "--most-waiting",
    type=click.IntRange(1, 20_000),
    metavar="N",
    help="Number of grades that each client may have in the queue.  [default: 2000]",
)
@click.option(
    "--allow-problem-text",
    is_flag=True,
    help="Accept the code of problems from clients. That code runs outside the sandbox, as the present user.",
)
@sign_option
@options_besides_device
@click.pass_context
def serve(ctx: click.Context, /, *, device: str, jobs: int | None, http: str | None, **named: Any) -> None:
    """Keep a judge ready in the foreground: `warpgrade grade` and programs of the same user then grade faster.

    Only the same user reaches the judge, through a Unix socket. Ctrl-C or --stop ends the judge after its current
    grades; a second Ctrl-C ends the grades too.

    With --http, clients on other machines submit to a durable queue; see docs/service.md. Every submission is graded
    by the options of this command.
    """
    of_the_service = {param.name or "" for param in ctx.command.params} - _OF_BOTH - _OF_THE_JUDGE
    if http is None:
        _refuse_given(ctx, of_the_service, "needs --http HOST:PORT")
        _serve_socket(device, jobs, **{name: named[name] for name in _OF_THE_JUDGE})
    else:
        _refuse_given(ctx, _OF_THE_JUDGE, "has no effect with --http")
        _serve_http(http, {**named, "device": device}, jobs)


@click.command(short_help="Create, revoke or list clients' tokens for `serve --http`.")
@click.argument("client", metavar="CLIENT", required=False)
@_tokens_option(help="File of the hashes.  [default: `tokens` in the default state folder of `serve --http`]")
@click.option("--revoke", is_flag=True, help="Remove all tokens of the client; a running service notices at once.")
@click.option("--list", "lists", is_flag=True, help="Write each client and the number of its tokens to stdout.")
def token(*, client: str | None, tokens: Path | None, revoke: bool, lists: bool) -> None:
    """Create a bearer token for CLIENT and write the token to stdout, once; the file stores only its hash.

    The name of the client decides who may fetch a card: two tokens of one client see the same grades.
    """
    from evaluator.service.tokens import add_token, default_state, default_tokens, revoke_tokens, tokens_by_client

    path = tokens or default_tokens(default_state())
    if lists:
        if client is not None or revoke:
            raise UsageError("--list takes no client and no --revoke")
        terminal.emit("".join(f"{name} {count}\n" for name, count in sorted(tokens_by_client(path).items())))
        return
    if client is None:
        raise UsageError("no client is named", hint="warpgrade token CLIENT, or warpgrade token --list")
    if revoke:
        removed = revoke_tokens(path, client)
        terminal.tell(f"revoked {removed} token{'s' if removed > 1 else ''} of {client} in {path}")
        return
    terminal.emit(f"{add_token(path, client)}\n")
    terminal.tell(f"added a token of {client} to {path}; its value is stored nowhere")


def _serve_socket(device: str, jobs: int | None, *, idle_minutes: float, asks_status: bool, asks_stop: bool) -> None:
    if asks_status and asks_stop:
        raise UsageError("--status and --stop exclude each other")
    if asks_status:
        from evaluator.api import ready_client

        terminal.emit(terminal.indented(ready_client.status()))
    elif asks_stop:
        from evaluator.api import ready_client

        ready_client.stop()
        terminal.tell("the ready judge has ended")
    else:
        from evaluator.devices.gpu import default_device
        from evaluator.service.local_door import DeviceGraders, local_door
        from evaluator.service.server import Program

        chosen = default_device() if device == AUTO else DeviceKind(device)
        with local_door(DeviceGraders(jobs, idle_minutes * 60), chosen, idle_minutes, terminal.tell) as door:
            Program(door, terminal.tell).run()


def _serve_http(http: str, arguments: dict[str, Any], jobs: int | None) -> None:
    if arguments["sandbox"] == SandboxMode.NONE.value:
        raise UsageError("the service grades only in the sandbox", hint="omit --sandbox none")
    try:
        from evaluator.service.http_door import Settings, address_of, http_door
        from evaluator.service.server import Program
    except ImportError as error:
        raise UsageError(f"{error.name} is not installed", hint="pip install 'warpgrade[http]'") from None
    from evaluator.api.grader import Grader
    from evaluator.service.tokens import default_state, default_tokens

    options, ray = taken_options(arguments), arguments["ray"]
    state = arguments["state"] or default_state()
    settings = Settings(
        address=address_of(http),
        state=state,
        tokens=arguments["tokens"] or default_tokens(state),
        keep_days=arguments["keep_days"],
        allows_problem_text=arguments["allow_problem_text"],
        problems=options.get("problems"),
        most_waiting=arguments["most_waiting"],
    )
    # Workers of the service's own: a ready judge of the user may end at any time.
    grading = partial(Grader, jobs=jobs, ready=False, ray=ray, **options)
    with (
        contextlib.redirect_stdout(sys.stderr),  # Ray prints messages about lost machines.
        http_door(settings, grading, terminal.tell) as door,
    ):
        Program(door, terminal.tell).run()


def _refuse_given(ctx: click.Context, names: Collection[str], reason: str) -> None:
    """Raise UsageError if the user gave an option of `names`, on the command line."""
    for param in ctx.command.params:
        source = ctx.get_parameter_source(param.name or "")
        if param.name in names and source is ParameterSource.COMMANDLINE:
            raise UsageError(f"{param.opts[0]} {reason}")


@click.command(short_help="Serve tools for agents by the Model Context Protocol.")
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder below which the agent may name files to grade.  [default: the agent sends text]",
)
@grading_options
def mcp(*, root: Path | None, **arguments: Any) -> None:
    """Serve the tools grade, explain, problems, profile and compare to an agent, until stdin closes.

    The options hold for all grades. The agent chooses problem and submission, and each of size or cases, budget and end
    at a failure that has no option here. Needs: pip install 'warpgrade[mcp]'
    """
    from evaluator.agents.server import serve

    notice = "serving the Model Context Protocol on stdin and stdout, for the client that started this command"
    serve(taken_options(arguments), root, lambda: terminal.tell(notice))
