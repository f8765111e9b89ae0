"""Problem bodies of RFC 9457 for failed requests, with the member `error` that OpenAI clients read."""

import logging
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any
from uuid import UUID

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from rag_core.errors import (
    AuthenticationError,
    BusyError,
    ClusterError,
    ConfigError,
    DocumentError,
    GenerationError,
    JudgeError,
    LocationError,
    NotFoundError,
    RagError,
    RateLimitedError,
    ReadOnlyError,
    ScopeError,
    StageTimeoutError,
    StoreError,
    TooLargeError,
    TransientError,
    UnavailableError,
    UsageError,
    suggest_name,
)
from rag_core.wire.events import snake_case
from rag_core.wire.problems import BrokenRule, OpenAIError, Problem
from rag_core.wire.shape import json_bytes
from serve.http.protected_resource import build_challenge
from serve.public_errors import STORE_UNREACHABLE, hide_foreign_text, public_message
from serve.readiness import explain_timeout

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER = 1
"""The `Retry-After` header of retryable problems, in seconds."""

STATUSES: Sequence[tuple[type[RagError], int]] = (
    (AuthenticationError, 401),
    (ScopeError, 403),
    (NotFoundError, 404),
    (BusyError, 409),
    (ConfigError, 500),
    (LocationError, 403),
    (ReadOnlyError, 403),
    (TooLargeError, 413),
    (UsageError, 422),
    (StageTimeoutError, 504),
    (GenerationError, 502),
    (JudgeError, 502),
    (RateLimitedError, 429),
    (UnavailableError, 503),
    (TransientError, 503),
    (DocumentError, 422),
)
RETRYABLE = frozenset({408, 429, 502, 503, 504})
RECOVERY: Mapping[int, Sequence[str]] = {
    408: ("retry_after",),
    413: ("send_less",),
    429: ("retry_after",),
    502: ("retry_after",),
    503: ("retry_after",),
    504: ("retry_after", "raise_timeout_ms", "reduce_top_k"),
}
TITLES = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    406: "Not Acceptable",
    408: "Request Timeout",
    409: "Conflict",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    421: "Misdirected Request",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}
"""The registered phrases. Python 3.11 still has older ones for 413 and 422."""
CODES = {
    400: "malformed",
    403: "cross_site",
    404: "not_found",
    405: "method_not_allowed",
    406: "not_acceptable",
    408: "request_timeout",
    413: "too_large",
    415: "unsupported_media_type",
    421: "misdirected",
    422: "invalid_request",
    431: "headers_too_large",
    503: "overloaded",
}
"""The codes of requests that the web framework or a middleware rejects."""

MAX_ERRORS = 20
"""The maximum number of errors that are listed for one request, or for one of its documents."""

HIDDEN_DETAILS: Mapping[type[RagError], str] = {
    StoreError: STORE_UNREACHABLE,
    ClusterError: "the cluster cannot be reached",
}
"""Details for clients in place of messages that contain addresses and user names."""

_QUOTING_ERRORS = (UsageError, DocumentError)
"""Errors that quote the client's text."""

RESERVED = "/v2/"
"""The beginning of the paths of a later API, which will break with this one."""

_ROUTING_DETAILS: Mapping[str, str] = {
    RESERVED: "{path} is reserved for a later version of this API; use /v1",
    "Not Found": "there is no route {path}; /openapi.json lists the routes",
    "Method Not Allowed": "{path} does not allow this method; the header Allow lists those that it allows",
}
"""The framework's details, which are only the titles of their statuses, and better ones."""

CHAT_PATH = "/chat/completions"
METHODS = ("DELETE", "GET", "PATCH", "POST", "PUT")

_log = logging.getLogger(__name__)


class RejectedDocumentsError(RequestValidationError):
    """The error of a request without any valid document. All errors are reported, not only `MAX_ERRORS`."""


def add_problem_handlers(app: FastAPI) -> None:
    """Turns expected exceptions into problems. The middleware answers all others, with `error_response`."""
    for kind in (RagError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, _handle_error)


async def _handle_error(request: Request, error: Exception) -> Response:
    if isinstance(error, StageTimeoutError):
        error = await explain_timeout(request.app.state.profiles.own.services.dependencies["store"], error)
    response = error_response(error, request.url.path, request.state.correlation_id)
    if isinstance(error, AuthenticationError):
        response.headers["WWW-Authenticate"] = build_challenge(request)
    if response.status_code == 405:  # Starlette lists only the methods of the first route with that path
        scopes = {method: {**request.scope, "method": method} for method in METHODS}
        allowed = [
            method
            for method, scope in scopes.items()
            if any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)
        ]
        response.headers["Allow"] = ", ".join(allowed)
    return response


def error_response(error: Exception, instance: str, correlation_id: str) -> Response:
    return problem_response(describe_problem(error, instance, correlation_id), _error_headers(error))


def _error_headers(error: Exception) -> Mapping[str, str]:
    match error:
        case ScopeError():
            return {"WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{error.scope}"'}
        case RateLimitedError():
            return {"Retry-After": str(ceil(error.seconds))}
        case HTTPException():
            return error.headers or {}
        case _:
            return {}


def problem_response(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    retry_after = {"Retry-After": str(RETRY_AFTER)} if problem.retryable else {}
    return Response(json_bytes(problem), problem.status, {**retry_after, **(headers or {})}, MEDIA_TYPE)


def describe_problem(error: Exception, instance: str, correlation_id: str) -> Problem:
    """The problem for an error. Messages that contain addresses, and those of unexpected exceptions, are replaced.

    The log has the original messages.
    """
    request = instance, correlation_id
    match error:
        case RagError():
            stage = error.stage if isinstance(error, StageTimeoutError | DocumentError) else ""
            code = snake_case(type(error).__name__.removesuffix("Error"))
            hidden = (detail for kind, detail in HIDDEN_DETAILS.items() if isinstance(error, kind))
            is_from_server = isinstance(error, UnavailableError | ConfigError) or not isinstance(error, _QUOTING_ERRORS)
            public_text = public_message(str(error)) if is_from_server else hide_foreign_text(str(error))
            detail = next(hidden, public_text)
            if detail != str(error):
                _log.warning("%s failed: %s", instance, error)
            return _problem(problem_status(error), code, detail, *request, **({"failed_stage": stage} if stage else {}))
        case RequestValidationError():
            return validation_problem(error, *request)
        case HTTPException():
            code = CODES.get(error.status_code, "http")
            title = RESERVED if f"{instance}/".startswith(RESERVED) else str(error.detail)
            detail = _ROUTING_DETAILS.get(title, "{detail}").format(path=instance, detail=error.detail)
            return _problem(error.status_code, code, detail, *request)
        case _:
            _log.error("%s failed", instance, exc_info=error)
            return _problem(500, "internal", "internal error; the gateway's log has the details", *request)


def problem_status(error: RagError) -> int:
    return next((status for kind, status in STATUSES if isinstance(error, kind)), 500)


def validation_problem(error: RequestValidationError, instance: str, correlation_id: str) -> Problem:
    """Status 422; 400 for invalid JSON, and for invalid messages, as OpenAI clients expect; 415 for a body without
    a JSON content type."""
    limit = None if isinstance(error, RejectedDocumentsError) else MAX_ERRORS
    missing = [str(row["loc"][-1]) for row in error.errors() if row["type"] == "missing"]
    errors = [_describe_rule(row, missing) for row in error.errors()[:limit]]
    status, code = 422, "invalid_request"
    if any(rule.code == "json_invalid" for rule in errors):
        status, code = 400, "malformed"
    elif instance.endswith(CHAT_PATH) and any(rule.pointer.split("/")[1:2] == ["messages"] for rule in errors):
        status, code = 400, "invalid_messages"
    elif isinstance(error.body, bytes):
        status, code = 415, "unsupported_media_type"
        detail = "the content type of the body must be application/json"
        errors = [BrokenRule(pointer="#/", code=code, detail=detail)]
    param = errors[0].pointer[2:] or None
    return _problem(status, code, errors[0].detail, instance, correlation_id, param, errors=errors)


def _describe_rule(error: Mapping[str, Any], missing: Sequence[str]) -> BrokenRule:
    """The pointer escapes `~` and `/` as RFC 6901 requires. `missing` are members that the body lacks."""
    if error["type"] == "json_invalid" and "ctx" in error:  # FastAPI's own
        reason = f"the body must be JSON: {error['ctx']['error']} at character {error['loc'][-1]}"
        return BrokenRule(pointer="#/", code=error["type"], detail=_replace_surrogates(reason))
    parts = (str(part).replace("~", "~0").replace("/", "~1") for part in error["loc"] if part != "body")
    pointer = _replace_surrogates("#/" + "/".join(parts))
    rule = error["msg"].removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":  # without the value: it can be large, or a secret
        rule += suggest_name(str(error["loc"][-1]), missing)
    elif error["type"] != "missing" and isinstance(error.get("input"), str | int | float):
        rule += f", got {error['input']!r:.60}"
    detail = _replace_surrogates(f"{pointer[2:] or 'the body'}: {rule}")
    return BrokenRule(pointer=pointer, code=error["type"], detail=detail)


def _problem(
    status: int, code: str, detail: str, instance: str, correlation_id: str, param: str | None = None, **more: Any
) -> Problem:
    """`more` has the optional members of a problem."""
    detail = _replace_surrogates(detail)
    return Problem(
        type=f"urn:rag-on-ray:problem:{code}",
        title=TITLES.get(status, "Error"),
        status=status,
        detail=detail,
        instance=_replace_surrogates(instance),
        correlation_id=UUID(correlation_id),
        error_type=code,
        retryable=status in RETRYABLE,
        recovery=list(RECOVERY.get(status, ())),
        error=OpenAIError(message=detail, type=code, code=code, param=param),
        **more,
    )


def _replace_surrogates(text: str) -> str:
    """Replaces characters that UTF-8 cannot encode: an error can quote the client's own text."""
    return text.encode("utf-8", "replace").decode()
