"""A plugin of pytest that pauses at random around threads, forks, processes and connections, so that races show.

    python -m pytest -p tests.pauses --pauses-seed 7 tests/serve

A pause stands for a busy machine, on which another thread or process may run first. Only this process and its forks
pause. The seed decides the lengths of the pauses; which thread meets which pause still differs from run to run.
"""

import functools
import os
import random
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

_LONGEST_S = 0.15
_PART = 0.5
"""Share of the places at which a pause is made: with one at every place, all threads would be late alike."""


class _Pauses:
    """Random pauses, from `seed`."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def take(self) -> None:
        """Sleep, or not."""
        if self._random.random() < _PART:
            time.sleep(self._random.random() * _LONGEST_S)

    def around(self, owner: object, name: str) -> None:
        """Pause before and after each call of a function of `owner`."""
        inner: Callable[..., Any] = getattr(owner, name)

        @functools.wraps(inner)
        def paused(*arguments: Any, **named: Any) -> Any:
            self.take()
            try:
                return inner(*arguments, **named)
            finally:
                self.take()

        setattr(owner, name, paused)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of the seed."""
    parser.addoption("--pauses-seed", type=int, help="seed of the random pauses (default: a new one)")


def pytest_configure(config: pytest.Config) -> None:
    """Draw the seed, and begin to pause. Processes of xdist receive the seed, and each adds its own number."""
    if config.option.pauses_seed is None:
        config.option.pauses_seed = secrets.randbelow(1 << 30)
    number = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    pauses = _Pauses(config.option.pauses_seed + int(number))
    pauses.around(threading.Thread, "run")
    pauses.around(threading.Thread, "start")
    pauses.around(socket.socket, "accept")
    pauses.around(socket.socket, "close")
    pauses.around(subprocess.Popen, "__init__")
    pauses.around(os, "fork")


def pytest_report_header(config: pytest.Config) -> str:
    """Return the line with the seed."""
    return f"random pauses: --pauses-seed {config.option.pauses_seed}"
