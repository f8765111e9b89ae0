"""Names of routes that existing clients use, such as `/query` without a version."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.types import ASGIApp, Receive, Scope, Send

ALIASES: Sequence[tuple[re.Pattern[str], str]] = (
    (re.compile(r"/(?:v1/)?query"), "/v1/retrieve"),
    (re.compile(r"/ingest"), "/v1/ingest"),
    (re.compile(r"/api/answer"), "/v1/answer"),
    (re.compile(r"(/jobs/[^/]+/events)"), r"/v1\1"),
)
"""The whole path of an alias, and the path of its route."""


@dataclass(frozen=True, slots=True)
class Aliases:
    """Changes the path of an alias to that of its route, before anything else sees the request."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = {**scope, "path": resolve_alias(scope["path"])}
        await self.app(scope, receive, send)


def resolve_alias(path: str) -> str:
    for alias, route in ALIASES:
        if match := alias.fullmatch(path):
            return match.expand(route)
    return path
