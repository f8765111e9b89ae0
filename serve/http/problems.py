"""Failures as RFC 9457 has them, with the member `error` that OpenAI's clients read."""

import json
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import Scope

from rag_core.errors import (
    BusyError,
    ClusterError,
    ConfigError,
    DocumentError,
    GenerationError,
    JudgeError,
    NotFoundError,
    RagError,
    StageTimeoutError,
    StoreError,
    TooLargeError,
    TransientError,
    UnavailableError,
    UsageError,
)
from serve.public_errors import STORE_UNREACHABLE, public_message
from serve.readiness import because_of

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER = 1
"""Seconds."""

STATUSES: Sequence[tuple[type[RagError], int]] = (
    (NotFoundError, 404),
    (BusyError, 409),
    (ConfigError, 500),
    (TooLargeError, 413),
    (UsageError, 422),
    (StageTimeoutError, 504),
    (GenerationError, 502),
    (JudgeError, 502),
    (UnavailableError, 503),
    (TransientError, 503),
    (DocumentError, 422),
)
RETRYABLE = frozenset({502, 503, 504})
RECOVERY: Mapping[int, Sequence[str]] = {
    413: ("send_less",),
    502: ("retry_after",),
    503: ("retry_after",),
    504: ("retry_after", "raise_timeout_ms", "reduce_top_k"),
}
TITLES = {
    400: "Malformed",
    403: "Not allowed",
    404: "Not found",
    405: "Not with this method",
    406: "Not in this form",
    409: "Busy",
    413: "Too large",
    415: "Not of this type",
    422: "Not valid",
    500: "Failed",
    502: "A model failed",
    503: "Not available",
    504: "Out of time",
}
CODES = {
    400: "malformed",
    403: "cross_site",
    404: "not_found",
    405: "method_not_allowed",
    406: "not_acceptable",
    413: "too_large",
    415: "unsupported_media_type",
    422: "invalid_request",
}
"""Of what the web framework refuses."""

MOST_ERRORS = 20
"""Broken rules that one request is told of, or one of its documents."""

HIDDEN: Mapping[type[RagError], str] = {
    StoreError: STORE_UNREACHABLE,
    ClusterError: "the cluster cannot be reached",
}
"""What clients are told of failures whose own words tell where things stand, and who works there."""

CHAT = "/chat/completions"
METHODS = ("DELETE", "GET", "PATCH", "POST", "PUT")

_log = logging.getLogger(__name__)


class RefusedDocumentsError(RequestValidationError):
    """Of a request no document of which was taken: each is told of, however many they are."""


def handle_problems(app: FastAPI) -> None:
    """But for what nobody expected: that is answered outside of all routes, with `response_to`."""
    for kind in (RagError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, _answered)


def problem(error: Exception, instance: str, correlation_id: str) -> dict[str, Any]:
    """Never more than the error says of itself. The words of one that nobody expected are in the log alone."""
    place = instance, correlation_id
    match error:
        case RagError():
            stage = error.stage if isinstance(error, StageTimeoutError | DocumentError) else ""
            return _problem(status_of(error), _code(error), _words(error, instance), *place, failed_stage=stage)
        case RequestValidationError():
            return invalid(error, *place)
        case HTTPException():
            code = CODES.get(error.status_code, "http")
            return _problem(error.status_code, code, str(error.detail), *place)
        case _:
            _log.error("%s failed", instance, exc_info=error)
            return _problem(500, "internal", "the gateway failed; its log says why", *place)


def _words(error: RagError, instance: str) -> str:
    """Those for clients; what they leave out is in the log."""
    hidden = (words for kind, words in HIDDEN.items() if isinstance(error, kind))
    words = next(hidden, public_message(str(error)))
    if words != str(error):
        _log.warning("%s failed: %s", instance, error)
    return words


def status_of(error: RagError) -> int:
    return next((status for kind, status in STATUSES if isinstance(error, kind)), 500)


def response_to(error: Exception, instance: str, correlation_id: str) -> Response:
    headers = error.headers if isinstance(error, HTTPException) else None
    return problem_response(problem(error, instance, correlation_id), headers)


def problem_response(body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    """A client may have sent what UTF-8 cannot write, as a name of something that is not allowed."""
    text = json.dumps(body, default=str, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    wait = {"Retry-After": str(RETRY_AFTER)} if body["retryable"] else {}
    return Response(text, body["status"], {**wait, **(headers or {})}, MEDIA_TYPE)


async def _answered(request: Request, error: Exception) -> Response:
    if isinstance(error, StageTimeoutError):
        error = await because_of(request.app.state.graph.dependencies["store"], error)
    response = response_to(error, request.url.path, request.state.correlation_id)
    if response.status_code == 405:
        response.headers["Allow"] = ", ".join(_methods(request))
    return response


def _methods(request: Request) -> list[str]:
    """Of all routes of that path: the framework names those of the first one."""
    scopes = {method: {**request.scope, "method": method} for method in METHODS}
    return [each for each, scope in scopes.items() if _taken(request, scope)]


def _taken(request: Request, scope: Scope) -> bool:
    return any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)


def invalid(error: RequestValidationError, instance: str, correlation_id: str) -> dict[str, Any]:
    """400 for what is no JSON, and for a conversation that cannot be read, as OpenAI's clients know it; 415 for what
    does not even say that it is JSON."""
    told = error.errors() if isinstance(error, RefusedDocumentsError) else error.errors()[:MOST_ERRORS]
    errors = [_broken_rule(each) for each in told]
    status, code = 422, "invalid_request"
    if any(each["code"] == "json_invalid" for each in errors):
        status, code = 400, "malformed"
    elif instance.endswith(CHAT) and any(each["pointer"].split("/")[1:2] == ["messages"] for each in errors):
        status, code = 400, "invalid_messages"
    elif isinstance(error.body, bytes):
        status, code = 415, "unsupported_media_type"
        errors = [{"pointer": "#/", "code": code, "detail": "a body must come as content-type application/json"}]
    body = _problem(status, code, errors[0]["detail"], instance, correlation_id, errors=errors)
    body["error"]["param"] = errors[0]["pointer"][2:] or None
    return body


def _problem(status: int, code: str, detail: str, instance: str, correlation_id: str, **more: object) -> dict[str, Any]:
    return {
        "type": f"urn:rag-on-ray:problem:{code}",
        "title": TITLES.get(status, "Failed"),
        "status": status,
        "detail": detail,
        "instance": instance,
        "correlation_id": correlation_id,
        "error_type": code,
        "retryable": status in RETRYABLE,
        "recovery": list(RECOVERY.get(status, ())),
        **{name: value for name, value in more.items() if value},
        "error": {"message": detail, "type": code, "code": code, "param": None},
    }


def _code(error: RagError) -> str:
    """`StageTimeoutError` is `stage_timeout`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(error).__name__.removesuffix("Error")).lower()


def _broken_rule(error: Mapping[str, Any]) -> dict[str, str]:
    pointer = "#/" + "/".join(_escaped(str(part)) for part in error["loc"] if part != "body")
    return {"pointer": pointer, "code": error["type"], "detail": f"{pointer[2:]}: {error['msg']}"}


def _escaped(part: str) -> str:
    """RFC 6901."""
    return part.replace("~", "~0").replace("/", "~1")
