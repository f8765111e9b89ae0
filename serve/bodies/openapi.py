"""The responses that `/openapi.json` lists for each route. Problems have their own media type there."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from fastapi import FastAPI
from pydantic import BaseModel

from rag_core.wire.problems import Problem
from serve.http.problems import MEDIA_TYPE, TITLES

Responses: TypeAlias = dict[int | str, dict[str, Any]]
"""The argument `responses` of FastAPI's routes."""


def problem_responses(*statuses: int) -> Responses:
    return {status: {"model": Problem, "description": TITLES[status]} for status in statuses}


COMMON_PROBLEMS = problem_responses(400, 403, 404, 406, 413, 421, 422, 500, 503)
"""The problems of every route, including those that the middleware raises."""
BODY_PROBLEMS = problem_responses(415)
MODEL_PROBLEMS = problem_responses(502, 504)
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


def fix_problem_media_types(app: FastAPI) -> FastAPI:
    """Lists problems under `application/problem+json`. FastAPI lists them under the media type of the success."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = generate()
            operations = [operation for path in app.openapi_schema["paths"].values() for operation in path.values()]
            for response in (response for operation in operations for response in operation["responses"].values()):
                content = response.get("content", {})
                if any(body.get("schema", {}).get("$ref", "").endswith("/Problem") for body in content.values()):
                    response["content"] = {MEDIA_TYPE: next(iter(content.values()))}
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
    return app
