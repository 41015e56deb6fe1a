"""Routes of the service, behind `AccessControl`, and their OpenAPI description."""

import asyncio
import hashlib
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evaluator import records
from evaluator.api.grader import Grader
from evaluator.api.scorecard import Scorecard
from evaluator.catalog import list_problems
from evaluator.errors import InfraError, ProblemError, ProblemNotFound, UsageError
from evaluator.records import Record
from evaluator.report.card.feedback import CHARACTERS
from evaluator.service import metrics
from evaluator.service.dispatcher import Dispatcher, problem_of
from evaluator.service.gate import HEALTH, AccessControl, Bodies, PartsResponse, Turns
from evaluator.service.journal import Added, Arrival, Journal, OtherRequest, QueueFull
from evaluator.service.messages import (
    LEAST_FEEDBACK,
    MOST_FEEDBACK,
    MOST_KEY,
    MOST_NAMED,
    MOST_PAGE,
    MOST_WAIT_S,
    Grade,
    GradeOrder,
    GradePage,
    ListedProblem,
    ProblemList,
    Refusal,
    RequestRefused,
    TextProblem,
)
from evaluator.service.metrics import Metrics
from evaluator.service.server import CLIENT
from evaluator.service.tokens import Tokens
from evaluator.version import __version__

_REF = "#/components/schemas/{name}"
_RESPONSES: dict[str, type[Record]] = {
    "submit": Grade,
    "page": GradePage,
    "show": Grade,
    "cancel": Grade,
    "card": records.Scorecard,
    "problems": ProblemList,
}
"""Document of each route, by the name of its function; other routes return text."""
_QUERIES = {"page": ("limit", "before", "ids", "wait_s"), "show": ("wait_s",), "feedback": ("characters",)}


def openapi_document(routes: Sequence[Route]) -> dict[str, Any]:
    """Return the description."""
    _, schemas = msgspec.json.schema_components([*_RESPONSES.values(), GradeOrder, Refusal], ref_template=_REF)
    paths: dict[str, Any] = {}
    for route in routes:
        for method in sorted((route.methods or set()) - {"HEAD"}):
            paths.setdefault(route.path, {})[method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Warpgrade", "version": __version__},
        "security": [{"token": []}],
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def _operation(route: Route) -> dict[str, Any]:
    name = route.endpoint.__name__
    parameters: list[dict[str, Any]] = [
        {"name": query, "in": "query", "schema": {"type": "string"}} for query in _QUERIES.get(name, ())
    ]
    if "{grade}" in route.path:
        parameters.append({"name": "grade", "in": "path", "required": True, "schema": {"type": "string"}})
    content = _content(_RESPONSES[name]) if name in _RESPONSES else {"text/plain": {}}
    operation: dict[str, Any] = {
        "summary": (route.endpoint.__doc__ or "").partition("\n")[0],
        "parameters": parameters,
        "responses": {
            "2XX": {"description": "The document", "content": content},
            "default": {"description": "A refusal", "content": _content(Refusal)},
        },
    }
    if name == "submit":
        key = {"name": "Idempotency-Key", "in": "header", "schema": {"type": "string"}}
        operation |= {"parameters": [key], "requestBody": {"required": True, "content": _content(GradeOrder)}}
    return operation


def _content(kind: type[Record]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REF.format(name=kind.__name__)}}}


_LATER = "submit again when some are graded"
_orders = msgspec.json.Decoder(GradeOrder)
_cards = msgspec.json.Decoder(Scorecard)


class Parts(NamedTuple):
    """Parts of the service that the routes use."""

    journal: Journal
    dispatcher: Dispatcher
    grader: Grader
    tokens: Tokens
    metrics: Metrics
    allows_problem_text: bool
    problems: Path | None


def app_of(parts: Parts) -> AccessControl:
    """Return the ASGI application of the service."""
    return AccessControl(_Routes(parts).app(), parts.tokens, parts.metrics.refused)


class _Routes:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._bodies = Bodies()
        self._cards = Turns()
        self._listing = asyncio.Lock()
        self._description = b""

    def app(self) -> Starlette:
        app = Starlette(
            routes=[
                Route("/v1/grades", self.submit, methods=["POST"]),
                Route("/v1/grades", self.page, methods=["GET"]),
                Route("/v1/grades/{grade}", self.show, methods=["GET"]),
                Route("/v1/grades/{grade}", self.cancel, methods=["DELETE"]),
                Route("/v1/grades/{grade}/card", self.card, methods=["GET"]),
                Route("/v1/grades/{grade}/feedback", self.feedback, methods=["GET"]),
                Route("/v1/problems", self.problems, methods=["GET"]),
                Route("/openapi.json", self.openapi, methods=["GET"]),
                Route("/metrics", self.metrics, methods=["GET"]),
                Route(HEALTH, self.health, methods=["GET"]),
            ],
            exception_handlers=dict.fromkeys((RequestRefused, UsageError, InfraError, HTTPException), self._on_error),
        )
        self._description = msgspec.json.encode(
            openapi_document([each for each in app.routes if isinstance(each, Route)])
        )
        app.router.redirect_slashes = False  # The address of a redirect would come from the request's Host header.
        return app

    async def submit(self, request: Request) -> Response:
        """Store a submission in the queue. Repeated with the same idempotency key, return the first grade."""
        client, key = request.scope[CLIENT], _key(request)
        async with self._bodies.read(client, request) as body:
            order = await asyncio.to_thread(_order, body)
            await self._check_problem(order)
            encoded = msgspec.json.encode(order)
            added = await self._parts.dispatcher.accept(
                Arrival(
                    client=client,
                    key=key,
                    request=encoded,
                    request_sha256=hashlib.sha256(encoded).hexdigest(),
                    problem=order.problem.name if isinstance(order.problem, TextProblem) else order.problem,
                    name=order.name,
                )
            )
        match added:
            case Added(grade=grade, is_new=is_new):
                return self._grade(grade, 202 if is_new else 200)
            case OtherRequest():
                raise RequestRefused(
                    422, "an earlier request with this Idempotency-Key had another content", "use a new key"
                )
            case QueueFull(is_the_clients=True):
                raise RequestRefused(429, "too many or too large submissions of this client wait", _LATER)
            case QueueFull():
                raise RequestRefused(429, "too many or too large submissions of all clients wait", _LATER)

    async def page(self, request: Request) -> Response:
        """Return the client's grades, latest first, at most `limit` before the grade `before`.

        With `ids`, return the named grades, with `wait_s` after the end of one of them.
        """
        if (named := request.query_params.get("ids")) is not None:
            return await self._named(request, named.split(","))
        most = _number(request, "limit", 100, 1, MOST_PAGE)
        before = request.query_params.get("before")
        grades = await self._parts.journal.page(request.scope[CLIENT], before, most + 1)
        if grades is None:
            raise RequestRefused(404, "no such grade as `before`", "begin again without `before`")
        grades_now = [self._parts.dispatcher.at_present(grade) for grade in grades[:most]]
        return _json(GradePage(grades_now, grades_now[-1].id if len(grades) > most else None), 200)

    async def _named(self, request: Request, ids: list[str]) -> Response:
        if len(ids) > MOST_NAMED:
            raise RequestRefused(400, f"ids has more than {MOST_NAMED} grades")
        client, wait_s, dispatcher = request.scope[CLIENT], _wait_s(request), self._parts.dispatcher
        grades = await self._parts.journal.grades(client, ids)
        if wait_s and grades:
            await dispatcher.until_final([grade.id for grade in grades], wait_s)
            grades = await self._parts.journal.grades(client, ids)
        return _json(GradePage([dispatcher.at_present(grade) for grade in grades], None), 200)

    async def problems(self, _: Request) -> Response:
        """Return the problems of the service. One request at a time reads the folder."""
        async with self._listing:
            try:
                listing = await asyncio.to_thread(list_problems, self._parts.problems)
            except ProblemError:  # Its message names a path of this machine.
                raise RequestRefused(503, "the service cannot read its problems", "tell the operator") from None
        listed = [
            ListedProblem(problem.name, problem.title, problem.level, problem.sha256) for problem in listing.problems
        ]
        return _json(ProblemList(listed), 200)

    async def show(self, request: Request) -> Response:
        """Return a grade; with `wait_s`, wait for the end first."""
        wait_s, grade = _wait_s(request), await self._found(request)
        if wait_s:
            await self._parts.dispatcher.until_final([grade.id], wait_s)
            grade = await self._found(request)
        return self._grade(grade, 200)

    async def cancel(self, request: Request) -> Response:
        """Cancel a waiting grade."""
        grade = await self._found(request)
        await self._parts.dispatcher.cancel(request.scope[CLIENT], grade.id)
        return self._grade(await self._found(request), 200)

    async def card(self, request: Request) -> Response:
        """Return the card of a finished grade."""
        async with AsyncExitStack() as turn_stack:
            await turn_stack.enter_async_context(self._cards.turn(request.scope[CLIENT]))
            return PartsResponse(await self._stored_card(request), "application/json", turn_stack.pop_all())

    async def feedback(self, request: Request) -> Response:
        """Return the text for a language model's next attempt."""
        characters = _number(request, "characters", CHARACTERS, LEAST_FEEDBACK, MOST_FEEDBACK)
        async with self._cards.turn(request.scope[CLIENT]):
            card = await self._stored_card(request)
            text = await asyncio.to_thread(lambda: _cards.decode(card).feedback(characters=characters))
        return Response(text, media_type="text/plain")

    async def _stored_card(self, request: Request) -> bytes:
        grade = await self._found(request)
        card = await self._parts.journal.card(request.scope[CLIENT], grade.id)
        if card is None:
            state = self._parts.dispatcher.at_present(grade).state.value
            raise RequestRefused(409, f"the grade has no card: it is {state}", "ask /v1/grades/ID?wait_s=60 first")
        return card

    async def openapi(self, _: Request) -> Response:
        """Return the OpenAPI description."""
        return Response(self._description, media_type="application/json")

    async def metrics(self, _: Request) -> Response:
        """Return metrics in Prometheus' format."""
        return Response(self._parts.metrics.text(), media_type=metrics.CONTENT_TYPE)

    async def health(self, _: Request) -> Response:
        """Tell that the server lives, or that the server ends."""
        return Response("ending\n", 503) if self._parts.dispatcher.is_ending else Response("ok\n")

    async def _found(self, request: Request) -> Grade:
        grades = await self._parts.journal.grades(request.scope[CLIENT], [request.path_params["grade"]])
        if not grades:
            raise RequestRefused(404, "no such grade", "grades are kept for a limited time")
        return grades[0]

    async def _check_problem(self, order: GradeOrder) -> None:
        if isinstance(order.problem, TextProblem) and not self._parts.allows_problem_text:
            hint = "name one of its problems; the operator may start it with --allow-problem-text"
            raise RequestRefused(403, "this service accepts no problems as text", hint)
        error = await asyncio.to_thread(self._parts.grader.refusal_of, problem_of(order))
        if isinstance(error, ProblemNotFound):  # Its hint names commands, which list the problems of another machine.
            raise ProblemNotFound(str(order.problem)[:80], error.nearest, "ask the operator for the service's problems")
        if error is not None:
            raise error

    def _grade(self, grade: Grade, status: int) -> Response:
        return _json(self._parts.dispatcher.at_present(grade), status)

    async def _on_error(self, _: Request, error: Exception) -> Response:
        match error:
            case RequestRefused(status=status, refusal=refusal):
                pass
            case UsageError():
                status, refusal = 422, Refusal(error.message, error.hint)
            case HTTPException():
                status, refusal = error.status_code, Refusal(error.detail, "/openapi.json lists all paths")
            case _:
                status, refusal = 503, Refusal("the service cannot use its disk", "submit again later")
        self._parts.metrics.refused(status)
        response = _json(refusal, status)
        if status in (429, 503):
            response.headers["retry-after"] = "1"
        if status in (408, 413):
            response.headers["connection"] = "close"
        return response


def _json(document: Record, status: int) -> Response:
    return Response(msgspec.json.encode(document), status, media_type="application/json")


def _key(request: Request) -> str | None:
    key = request.headers.get("idempotency-key")
    if key is not None and not (0 < len(key) <= MOST_KEY and key.isascii() and key.isprintable()):
        raise RequestRefused(
            400, f"the Idempotency-Key is not 1 to {MOST_KEY} printable characters", "use a random UUID"
        )
    return key


def _number(request: Request, name: str, default: int, least: int, most: int) -> int:
    text = request.query_params.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= most):
        raise RequestRefused(400, f"{name} is not a number from {least} to {most}")
    return int(text)


def _wait_s(request: Request) -> float:
    text = request.query_params.get("wait_s", "0")
    try:
        wait_s = float(text)
    except ValueError:
        wait_s = -1.0
    if not 0 <= wait_s <= MOST_WAIT_S:
        raise RequestRefused(400, f"wait_s is not a number from 0 to {MOST_WAIT_S:.0f}")
    return wait_s


def _order(body: bytearray) -> GradeOrder:
    try:
        order = _orders.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestRefused(400, f"the body is not a submission: {error}", "see GradeOrder in /openapi.json") from None
    if not order.name.isprintable():
        raise RequestRefused(400, "the submission's name is not printable")
    return order
