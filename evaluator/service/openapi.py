"""OpenAPI description of the service, made from its routes and the records of its documents."""

from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.routing import Route

from evaluator import records
from evaluator.records import Record
from evaluator.service.messages import Grade, GradeOrder, GradePage, ProblemList, Refusal
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
