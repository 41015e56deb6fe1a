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
    MOST_NAMED,
    MOST_PAGE,
    MOST_WAIT_S,
    Grade,
    GradeOrder,
    GradePage,
    ProblemList,
    Refusal,
)
from evaluator.version import __version__

_REF = "#/components/schemas/{name}"
_DOCUMENTS = [Grade, GradeOrder, GradePage, ProblemList, Refusal, Scorecard]
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
    key = _header("Idempotency-Key", {"type": "string", "maxLength": MOST_KEY})
    wait_s = {"type": "number", "minimum": 0, "maximum": MOST_WAIT_S, "default": 0}
    grade = {"200": _json("The grade", "Grade")}
    new = {
        "202": _json("The new grade", "Grade"),
        "200": _json("The grade of an earlier request with the same Idempotency-Key", "Grade"),
    }
    page = [
        _query("limit", "Largest number of grades", _integer(1, MOST_PAGE, 100)),
        _query("before", "Only grades that arrived before the grade with this id", {"type": "string"}),
        _query("ids", f"Only the grades with these ids, at most {MOST_NAMED}, separated by commas", {"type": "string"}),
        _query("wait_s", "Longest time to wait for the end of one of the named grades, in seconds", wait_s),
    ]
    wait = _query("wait_s", "Longest time to wait for the end of the grade, in seconds", wait_s)
    length = _query("characters", "Longest text", _integer(LEAST_FEEDBACK, MOST_FEEDBACK, CHARACTERS))
    described = "Text about a finished grade for a language model's next attempt"
    return {
        "/v1/grades": {
            "post": {
                **_operation("Submit a submission", new, "400 403 408 411 413 422 429 503", key),
                "requestBody": {"required": True, **_content("GradeOrder")},
            },
            "get": _operation(
                "The client's grades, latest first", {"200": _json("The grades", "GradePage")}, "400 404", *page
            ),
        },
        "/v1/grades/{grade}": {
            "get": _operation("State of a grade", grade, "400 404", _GRADE_ID, wait),
            "delete": _operation("Cancel a waiting grade; without effect on any other grade", grade, "404", _GRADE_ID),
        },
        "/v1/grades/{grade}/card": {
            "get": _operation(
                "Scorecard of a finished grade", {"200": _json("The scorecard", "Scorecard")}, "404 409", _GRADE_ID
            )
        },
        "/v1/grades/{grade}/feedback": {
            "get": _operation(described, _text("200"), "400 404 409", _GRADE_ID, length),
        },
        "/v1/problems": {
            "get": _operation("Problems of the service", {"200": _json("The problems", "ProblemList")}, "503")
        },
        "/metrics": {"get": {"summary": "Metrics for Prometheus", "responses": _text("200")}},
        "/healthz": {
            "get": {"summary": "Whether the server lives", "security": [], "responses": _text("200", "503")},
        },
    }


def _operation(summary: str, responses: dict[str, Any], refusals: str, *parameters: dict[str, Any]) -> dict[str, Any]:
    """Return an operation with responses, refusals by HTTP status, and parameters."""
    refused = {status: _json("Refused", "Refusal") for status in (*refusals.split(), "401")}
    named = {"parameters": list(parameters)} if parameters else {}
    return {"summary": summary, **named, "responses": {**responses, **refused}}


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
