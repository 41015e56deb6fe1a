"""Door of clients on other machines: state folder, journal, tokens and grader of the HTTP service."""

import contextlib
import ipaddress
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from evaluator.api.grader import Grader
from evaluator.errors import UsageError
from evaluator.service.app import Parts, app_of
from evaluator.service.dispatcher import Dispatcher
from evaluator.service.journal import Journal, QueueLimits
from evaluator.service.metrics import Metrics
from evaluator.service.server import MOST_CONNECTIONS, Address, Door, LimitedConnection, listening
from evaluator.service.tokens import Tokens, locked

LIMITS = QueueLimits(
    of_a_client=2_000, of_all=20_000, bytes_of_a_client=256 << 20, bytes_of_all=2 << 30, kept_bytes=2 << 30
)
_OPEN_FILES = 2 * MOST_CONNECTIONS
"""Connections, and the pipes and files of workers and journal."""
_DAY_S = 86_400.0


class Settings(NamedTuple):
    """Settings of the service. `problems` is the folder of problems; None for the shipped ones."""

    address: Address
    state: Path
    tokens: Path
    keep_days: float
    allows_problem_text: bool
    problems: Path | None = None
    most_waiting: int | None = None


def address_of(text: str) -> Address:
    """Parse `HOST:PORT`.

    >>> address_of("127.0.0.1:8000"), address_of("[::1]:0")
    (Address(host='127.0.0.1', port=8000), Address(host='::1', port=0))

    Raises:
        UsageError: the text is no address.
    """
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise UsageError(f"{text!r} is not HOST:PORT", hint="for this machine alone: --http 127.0.0.1:8000")
    return Address(host, int(port))


@contextlib.contextmanager
def http_door(
    settings: Settings,
    make_grader: Callable[[], Grader],
    tell: Callable[[str], None],
) -> Iterator[Door]:
    """Open the door.

    Args:
        settings: the settings.
        make_grader: makes the grader, after all other parts are ready.
        tell: prints a line.

    Raises:
        UsageError: the address, the token file or the state folder cannot be used, or too few files may be open.
        InfraError: the disk failed.
    """
    tokens = Tokens(settings.tokens)
    limits = LIMITS if settings.most_waiting is None else LIMITS._replace(of_a_client=settings.most_waiting)
    _allow_open_files()
    with (
        locked(settings.state),
        listening(settings.address, "choose another port, or end the program that listens there") as listener,
        contextlib.closing(Journal(settings.state, limits)) as journal,
        make_grader() as grader,
    ):
        port = listener.getsockname()[1]
        host = f"[{settings.address.host}]" if ":" in settings.address.host else settings.address.host
        if not _is_loopback(settings.address.host):
            tell("tokens and submissions cross the network unencrypted: put a proxy with TLS in front")
        if settings.allows_problem_text:
            tell("clients may run any code as this user, because of --allow-problem-text")
        tell(f"service {os.getpid()} listens on http://{host}:{port}; state in {settings.state}")
        metrics = Metrics()
        dispatcher = Dispatcher(journal, grader, metrics, tell, keep_s=settings.keep_days * _DAY_S)
        parts = Parts(journal, dispatcher, grader, tokens, metrics, settings.allows_problem_text, settings.problems)
        yield Door(listener, app_of(parts), LimitedConnection, dispatcher, has_results=False)
    tell("the service has ended")


def _allow_open_files() -> None:
    """Raise the limit of open files: connections must leave enough for workers. Raises UsageError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= _OPEN_FILES:
        return
    if hard != resource.RLIM_INFINITY and hard < _OPEN_FILES:
        raise UsageError(f"the service needs {_OPEN_FILES} open files, and may have {hard}", hint="raise `ulimit -Hn`")
    resource.setrlimit(resource.RLIMIT_NOFILE, (_OPEN_FILES, hard))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
