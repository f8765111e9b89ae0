"""What a route may answer with, for `/openapi.json`. Problems stand there under their own media type."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from fastapi import FastAPI
from pydantic import BaseModel

from serve.bodies.responses import Problem
from serve.http.problems import MEDIA_TYPE, TITLES

Statuses: TypeAlias = dict[int | str, dict[str, Any]]
"""As FastAPI takes them."""


def problems(*statuses: int) -> Statuses:
    return {status: {"model": Problem, "description": TITLES[status]} for status in statuses}


EVERYWHERE = problems(400, 403, 404, 406, 413, 422, 500, 503)
"""Also by those who stand before the routes."""
BODY = problems(415)
ASKS_MODELS = problems(502, 504)
CHANGES = problems(409)

EVENT: Mapping[str, Any] = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in ("event", "data", "id")},
    "required": ["data"],
}
EVENTS: Mapping[str, Any] = {"text/event-stream": {"itemSchema": EVENT}}


def shows(body: type[BaseModel], *more: Statuses, status: int = 200, events: bool = False) -> Statuses:
    """`events`: or server-sent ones."""
    told: dict[str, Any] = {"model": body, "description": "As it was asked for"}
    if events:
        told["content"] = dict(EVENTS)
    return {status: told, **{each: shown for part in more for each, shown in part.items()}}


def documented(app: FastAPI) -> FastAPI:
    """With the problems where clients look for them."""
    told = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _with_problems(told())
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
    return app


def _with_problems(schema: dict[str, Any]) -> dict[str, Any]:
    """FastAPI writes all bodies of a route under the media type of its success."""
    operations = [operation for path in schema["paths"].values() for operation in path.values()]
    for response in (response for operation in operations for response in operation["responses"].values()):
        content = response.get("content", {})
        if any(body.get("schema", {}).get("$ref", "").endswith("/Problem") for body in content.values()):
            response["content"] = {MEDIA_TYPE: next(iter(content.values()))}
    return schema
