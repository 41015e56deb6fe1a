"""A headless Chromium for tests, spoken to through the pipe of its DevTools protocol: no package and no port."""

import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_LIMIT_S = 300.0
_OPTIONS = (
    "--headless",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-pipe",
)


def chromium() -> str | None:
    """Find one: WARPGRADE_CHROMIUM names it, else it is on the path."""
    return os.environ.get("WARPGRADE_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """A running Chromium. Its tabs share nothing but the pipe."""

    def __init__(self, reader: int, writer: int) -> None:
        self._reader, self._writer = reader, writer
        self._buffer = b""
        self._number = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self._events: dict[str, list[dict[str, Any]]] = {}

    @contextlib.contextmanager
    def tab(self) -> Iterator["Tab"]:
        """Have a page, with storage of its own."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        events = self._events[session] = []
        try:
            yield Tab(self, session, events)
        finally:
            self.call("Target.disposeBrowserContext", browserContextId=context)

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Have the browser do something, and wait for its answer."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._writer, json.dumps(message).encode() + b"\0")
        self.wait(lambda: number in self._answers)
        answer = self._answers.pop(number)
        assert "error" not in answer, answer
        return answer["result"]

    def wait(self, over: Callable[[], bool]) -> None:
        """Receive messages until a condition holds."""
        until_s = time.monotonic() + _LIMIT_S
        while not over():
            readable, _, _ = select.select([self._reader], [], [], max(0.0, until_s - time.monotonic()))
            assert readable, "the browser does not answer"
            piece = os.read(self._reader, 1 << 16)
            assert piece, "the browser has ended"
            *whole, self._buffer = (self._buffer + piece).split(b"\0")
            for message in map(json.loads, whole):
                if "id" in message:
                    self._answers[message["id"]] = message
                else:
                    self._events.get(message.get("sessionId", ""), []).append(message)


class Tab:
    """A page in a browser. `events` has the page's log entries, refused requests and dialogues."""

    def __init__(self, browser: Browser, session: str, events: list[dict[str, Any]]) -> None:
        self._browser, self._session = browser, session
        self.events = events
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def open(self, address: str) -> None:
        """Open a page, and wait until it is loaded."""
        seen = len(self.events)
        self.call("Page.navigate", url=address)
        self._browser.wait(lambda: any(each["method"] == "Page.loadEventFired" for each in self.events[seen:]))

    def evaluate(self, expression: str) -> Any:
        """Give the value of an expression in the page; a promise is waited for."""
        said = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in said, said
        return said["result"].get("value")

    def type_into(self, identity: str, text: str) -> None:
        """Type as a person would."""
        self.evaluate(f"document.getElementById({json.dumps(identity)}).focus()")
        self.call("Input.insertText", text=text)

    def click(self, expression: str) -> None:
        """Click with the mouse in the middle of an element."""
        at = self.evaluate(
            f"(() => {{ const element = {expression}; element.scrollIntoView({{block: 'center'}});"
            " const box = element.getBoundingClientRect();"
            " return [box.x + box.width / 2, box.y + box.height / 2] })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=at[0], y=at[1], button="left", clickCount=1)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Have the page do something, and wait for its answer."""
        return self._browser.call(method, self._session, **parameters)


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """Have a browser without a page."""
    program = chromium()
    assert program is not None
    to_it, from_us = os.pipe()
    from_it, to_us = os.pipe()
    # The browser speaks on descriptors 3 and 4.
    script = f'exec 3<&{to_it} 4>&{to_us}; exec "$@"'
    # Its own sandbox does not work for root; what it opens is our own page.
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as home:
        process = subprocess.Popen(
            ["/bin/bash", "-c", script, "bash", program, *_OPTIONS, *sandbox, f"--user-data-dir={home}"],
            pass_fds=(to_it, to_us),
            env={**os.environ, "HOME": home},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_it)
        os.close(to_us)
        try:
            yield Browser(from_it, from_us)
        finally:
            process.kill()
            process.wait()
            os.close(from_it)
            os.close(from_us)
