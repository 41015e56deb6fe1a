"""OpenAPI description of the service, made from the records of its documents."""

from functools import cache
from typing import Any

import msgspec

from evaluator.records import Scorecard
from evaluator.report.card.feedback import CHARACTERS
from evaluator.service.documents.messages import (
    LEAST_FEEDBACK,
    MOST_FEEDBACK,
    MOST_KEY,
    MOST_PAGE,
    MOST_WAIT_S,
    Grade,
    GradeOrder,
    GradePage,
    Position,
    ProblemList,
    Refusal,
)
from evaluator.version import __version__

_REF = "#/components/schemas/{name}"
_DOCUMENTS = [Grade, GradeOrder, GradePage, Position, ProblemList, Refusal, Scorecard]
_GRADE_ID = {"name": "grade", "in": "path", "required": True, "schema": {"type": "string"}}


@cache
def description() -> bytes:
    """Return the description as JSON."""
    return msgspec.json.encode(document())


def document() -> dict[str, Any]:
    """Return the description.

    >>> sorted(document()["paths"])[:2]
    ['/healthz', '/metrics']
    """
    _, schemas = msgspec.json.schema_components(_DOCUMENTS, ref_template=_REF)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Warpgrade", "version": __version__},
        "security": [{"token": []}],
        "paths": _paths(),
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _paths() -> dict[str, Any]:
    grade = {"200": _json("The grade", "Grade")}
    return {
        "/v1/grades": {
            "post": {
                "summary": "Submit a submission",
                "parameters": [_header("Idempotency-Key", {"type": "string", "maxLength": MOST_KEY})],
                "requestBody": {"required": True, **_content("GradeOrder")},
                "responses": {
                    "202": _json("The new grade", "Grade"),
                    "200": _json("The grade of an earlier request with the same Idempotency-Key", "Grade"),
                    **_refusals("400", "403", "408", "411", "413", "422", "429", "503"),
                },
            },
            "get": {
                "summary": "The client's grades, latest first",
                "parameters": [
                    _query("limit", "Largest number of grades", _integer(1, MOST_PAGE, 100)),
                    _query("before", "Only grades that arrived before the grade with this id", {"type": "string"}),
                ],
                "responses": {"200": _json("The grades", "GradePage"), **_refusals("400", "404")},
            },
        },
        "/v1/grades/{grade}": {
            "get": {
                "summary": "State of a grade",
                "parameters": [
                    _GRADE_ID,
                    _query(
                        "wait_s",
                        "Longest time to wait for the end of the grade, in seconds",
                        {"type": "number", "minimum": 0, "maximum": MOST_WAIT_S, "default": 0},
                    ),
                ],
                "responses": {**grade, **_refusals("400", "404")},
            },
            "delete": {
                "summary": "Cancel a waiting grade; without effect on any other grade",
                "parameters": [_GRADE_ID],
                "responses": {**grade, **_refusals("404")},
            },
        },
        "/v1/grades/{grade}/card": {
            "get": {
                "summary": "Scorecard of a finished grade",
                "parameters": [_GRADE_ID],
                "responses": {"200": _json("The scorecard", "Scorecard"), **_refusals("404", "409")},
            }
        },
        "/v1/grades/{grade}/feedback": {
            "get": {
                "summary": "Text about a finished grade for a language model's next attempt",
                "parameters": [
                    _GRADE_ID,
                    _query("characters", "Longest text", _integer(LEAST_FEEDBACK, MOST_FEEDBACK, CHARACTERS)),
                ],
                "responses": {**_text("200"), **_refusals("400", "404", "409")},
            }
        },
        "/v1/problems": {
            "get": {
                "summary": "Problems of the service",
                "responses": {"200": _json("The problems", "ProblemList"), **_refusals("503")},
            }
        },
        "/v1/events": {
            "get": {
                "summary": "Server-sent events: `start` with a Position, then `grade` with each final Grade",
                "parameters": [_header("Last-Event-ID", {"type": "integer", "minimum": 0})],
                "responses": {
                    "200": {"description": "The events", "content": {"text/event-stream": {}}},
                    **_refusals("400", "409"),
                },
            }
        },
        "/metrics": {"get": {"summary": "Metrics for Prometheus", "responses": _text("200")}},
        "/healthz": {
            "get": {"summary": "Whether the server lives", "security": [], "responses": _text("200", "503")},
        },
    }


def _refusals(*statuses: str) -> dict[str, Any]:
    return {status: _json("Refused", "Refusal") for status in (*statuses, "401")}


def _json(described: str, name: str) -> dict[str, Any]:
    return {"description": described, **_content(name)}


def _content(name: str) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": {"$ref": _REF.format(name=name)}}}}


def _text(*statuses: str) -> dict[str, Any]:
    return {status: {"description": "Text", "content": {"text/plain": {}}} for status in statuses}


def _integer(least: int, most: int, default: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": least, "maximum": most, "default": default}


def _query(name: str, described: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "description": described, "schema": schema}


def _header(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "schema": schema}
