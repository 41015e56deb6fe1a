"""HTTP requests of the client: repeated while the service is unreachable or busy, never after a refusal."""

import threading
import time
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING

import msgspec

from evaluator.errors import InfraError, UsageError
from evaluator.service.messages import MOST_BODY_BYTES, Refusal

if TYPE_CHECKING:
    import httpx

_BUSY = frozenset({408, 429, 500, 502, 503, 504})
"""HTTP statuses after which the same request may succeed later."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
_TIMEOUT_S = 20.0
_WAITS = 429


class Transport:
    """Connections to the service. Thread-safe."""

    def __init__(self, url: str, token: str, patience_s: float) -> None:
        """Store address and token. Raises UsageError if httpx is not installed, or the address or token is invalid."""
        self._httpx = _imported()
        if not token.isascii() or not token.isprintable() or not token.strip():
            raise UsageError("the token is empty or not printable", hint="use the output of `warpgrade token CLIENT`")
        try:
            parsed = self._httpx.URL(url)
        except self._httpx.InvalidURL as error:
            raise UsageError(f"{url!r} is not an address: {error}", hint="http://HOST:PORT") from None
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise UsageError(f"{url!r} is not an address", hint="http://HOST:PORT")
        self._patience_s = patience_s
        self._ended = threading.Event()
        # The client's environment must not send the token through a proxy of its own choice.
        self._client: httpx.Client = self._httpx.Client(
            base_url=parsed,
            headers={"Authorization": f"Bearer {token}"},
            timeout=_TIMEOUT_S,
            follow_redirects=False,
            limits=self._httpx.Limits(),
            trust_env=parsed.scheme == "https",
        )

    @property
    def is_closed(self) -> bool:
        """Whether `close` or `end_repetitions` was called."""
        return self._ended.is_set()

    def end_repetitions(self) -> None:
        """End all waiting between repeated requests. Requests on their way are finished."""
        self._ended.set()

    def close(self) -> None:
        """End all connections, and all waiting between repeated requests."""
        self.end_repetitions()
        self._client.close()

    def request(
        self, method: str, path: str, *, content: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> bytes:
        """Send a request until the service accepts or refuses it; return the body of the response.

        A full queue is no refusal: the request is repeated without end.

        Raises:
            UsageError: the service refuses the request.
            InfraError: the service was unreachable or busy for `patience_s`.
        """
        if len(content) > MOST_BODY_BYTES:
            raise UsageError(f"the submission is larger than {MOST_BODY_BYTES >> 20} MiB, the limit of the service")
        until_s, pause_s = time.monotonic() + self._patience_s, _FIRST_PAUSE_S
        while True:
            try:
                response = self._client.request(method, path, content=content, headers=headers)
            except (self._httpx.TransportError, RuntimeError) as error:  # RuntimeError: the client is closed
                cause = str(error) or type(error).__name__
            else:
                if response.status_code not in _BUSY:
                    return _accepted(response)
                cause = _refusal(response).error
                if response.status_code == _WAITS:
                    until_s = time.monotonic() + self._patience_s
            if time.monotonic() + pause_s > until_s:
                message = f"the service did not answer for {self._patience_s:g} s: {cause}"
                raise InfraError(message, hint="check the address, and that the service runs")
            if self._ended.wait(pause_s):
                raise InfraError("the grader was closed")
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def try_once(self, method: str, path: str, timeout_s: float) -> bool:
        """Send a request once; return whether the service replied."""
        try:
            self._client.request(method, path, timeout=timeout_s)
        except (self._httpx.TransportError, RuntimeError):
            return False
        return True


def _accepted(response: "httpx.Response") -> bytes:
    """Return the body of a response. Raises UsageError for a refusal."""
    if response.is_success:
        return response.content
    refusal = _refusal(response)
    message = f"the service refuses the request ({response.status_code}): {refusal.error}"
    raise UsageError(message, hint=refusal.hint)


def _refusal(response: "httpx.Response") -> Refusal:
    """Return the reason in a response; a proxy's response has none."""
    try:
        return msgspec.json.decode(response.content, type=Refusal)
    except msgspec.DecodeError:
        return Refusal(f"HTTP status {response.status_code}")


def _imported() -> ModuleType:
    try:
        import httpx
    except ImportError:
        raise UsageError("httpx is not installed", hint="pip install 'warpgrade[http]'") from None
    return httpx
