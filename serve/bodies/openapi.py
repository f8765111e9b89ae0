"""The responses that `/openapi.json` lists for each route. Problems have their own media type there.

Problems refer to one schema by its name. FastAPI would build a serializer for each status of each route, which takes
longer than the rest of the application's start.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from fastapi import FastAPI
from fastapi.encoders import jsonable_encoder
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from rag_core.wire.problems import Problem
from serve.http.problems import MEDIA_TYPE, TITLES

Responses: TypeAlias = dict[int | str, dict[str, Any]]
"""The argument `responses` of FastAPI's routes."""


_REFERENCE = "#/components/schemas/{model}"


def problem_responses(*statuses: int) -> Responses:
    content = {MEDIA_TYPE: {"schema": {"$ref": _REFERENCE.format(model=Problem.__name__)}}}
    return {status: {"description": TITLES[status], "content": content} for status in statuses}


COMMON_PROBLEMS = problem_responses(400, 401, 403, 404, 406, 408, 413, 421, 422, 500, 503)
"""The problems of every route, including those that the middleware raises."""
BODY_PROBLEMS = problem_responses(415)
MODEL_PROBLEMS = problem_responses(502, 504)
RATE_PROBLEMS = problem_responses(429)
CONFLICT_PROBLEMS = problem_responses(409)

EVENT: Mapping[str, Any] = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in ("event", "data", "id")},
    "required": ["data"],
}
EVENTS: Mapping[str, Any] = {"text/event-stream": {"itemSchema": EVENT}}


def success_response(body: type[BaseModel], *more: Responses, status: int = 200, events: bool = False) -> Responses:
    """The successful response, and `more` responses. `events`: the response can be server-sent events instead."""
    response: dict[str, Any] = {"model": body, "description": "Success"}
    if events:
        response["content"] = dict(EVENTS)
    responses: Responses = {status: response}
    for others in more:
        responses |= others
    return responses


def complete_schema(app: FastAPI, requires_credentials: bool) -> FastAPI:
    """Adds to `/openapi.json` what FastAPI does not know: the schema of problems, and that credentials are optional."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = generate()
            _, problem = models_json_schema([(Problem, "serialization")], ref_template=_REFERENCE)
            app.openapi_schema["components"]["schemas"] |= jsonable_encoder(problem["$defs"], exclude_none=True)
            if not requires_credentials:
                _make_credentials_optional(app.openapi_schema["paths"])
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
    return app


def _make_credentials_optional(paths: Mapping[str, Mapping[str, Any]]) -> None:
    """Adds an empty requirement, which a request without credentials meets."""
    for operations in paths.values():
        for operation in operations.values():
            if "security" in operation and {} not in operation["security"]:
                operation["security"].append({})
