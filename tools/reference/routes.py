"""The page of the HTTP API, from its OpenAPI description."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

from rag_core.settings import load_settings
from serve.authentication.caller import OpenAuthenticator
from serve.gateway import build_fastapi
from serve.profiles import ServedProfiles
from serve.services import Services
from tools.reference.markdown import JsonSchema, describe_type, property_rows, table

INTRODUCTION = """\
# HTTP API

`rag serve` serves these routes; `/docs` of a running server lists them, too, and `/openapi.json` describes them for
programs. Errors are `application/problem+json` (RFC 9457). They say whether a request can be repeated, and have the
member `error` that OpenAI's clients read. Every response has these headers: `X-Correlation-ID`, `X-Request-ID`,
`X-API-Version`, `X-Pipeline-Version` and `Server-Timing`. [The server](../how-to/server.md) has examples.
"""
PROBLEMS = (
    *("400", "401", "403", "404", "405", "406", "408", "409", "413", "415", "421", "422", "429"),
    *("500", "502", "503", "504"),
)


def render_routes() -> str:
    settings = load_settings(environment={})
    no_store = SimpleNamespace(settings=settings, authenticator=OpenAuthenticator(settings.tenant))
    description = build_fastapi(ServedProfiles(cast(Services, no_store))).openapi()  # no request is sent
    operations = [
        (method, path, operation)
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    ]
    routes = [_render_route(f"{method.upper()} {path}", operation) for method, path, operation in operations]
    shapes = [_render_shape(name, schema) for name, schema in sorted(description["components"]["schemas"].items())]
    return "\n".join([INTRODUCTION, *routes, "## Shapes\n", *shapes])


def _render_route(name: str, operation: JsonSchema) -> str:
    parameters = [
        (f"`{each['name']}`", each["in"], describe_type(each["schema"]), "yes" if each["required"] else "")
        for each in operation.get("parameters", ())
    ]
    parts = [f"## {name}\n\n{operation.get('description', operation['summary'])}\n"]
    if parameters:
        parts.append(table(("parameter", "in", "type", "required"), parameters))
    parts += [f"Body: {kind}\n" for kind in _list_contents(operation.get("requestBody", {}))]
    parts += [f"{line}\n" for line in _describe_responses(operation["responses"])]
    return "\n".join(parts)


def _describe_responses(responses: JsonSchema) -> Iterator[str]:
    for status, response in responses.items():
        if status not in PROBLEMS:
            yield f"Response {status}: {', or '.join(_list_contents(response)) or 'no body'}"
    yield f"Problems: {', '.join(status for status in PROBLEMS if status in responses)}"


def _list_contents(holder: JsonSchema) -> list[str]:
    """The shape and media type of each form that a body can have."""
    return [
        f"{describe_type(content['schema'])} (`{kind}`)" if "schema" in content else f"`{kind}`"
        for kind, content in holder.get("content", {}).items()
    ]


def _render_shape(name: str, schema: dict[str, Any]) -> str:
    heading = f"### {name} {{#{name.lower()}}}\n\n{schema.get('description', '')}\n"
    return f"{heading}\n{table(('member', 'type', 'default', 'meaning'), property_rows(schema))}"
