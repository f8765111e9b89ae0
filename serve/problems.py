"""Failures as RFC 9457 has them, with the member `error` that OpenAI's clients read."""

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from rag_core.errors import (
    BusyError,
    ConfigError,
    GenerationError,
    JudgeError,
    NotFoundError,
    OverloadedError,
    RagError,
    StageTimeoutError,
    TooLargeError,
    UnavailableError,
    UsageError,
)

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
    (OverloadedError, 429),
    (GenerationError, 502),
    (JudgeError, 502),
    (UnavailableError, 503),
)
RETRYABLE = frozenset({429, 502, 503, 504})
TITLES = {
    404: "Not found",
    409: "Busy",
    413: "Too large",
    422: "Not valid",
    429: "Too much at once",
    500: "Failed",
    502: "A model failed",
    503: "Not available",
    504: "Out of time",
}

_log = logging.getLogger(__name__)


def handle_problems(app: FastAPI) -> None:
    for kind in (RagError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, _answered)


def problem(error: RagError, instance: str, correlation_id: str) -> dict[str, Any]:
    """Never more than the error says of itself."""
    stage = error.stage if isinstance(error, StageTimeoutError) else ""
    return _problem(status_of(error), _code(error), str(error), instance, correlation_id, failed_stage=stage)


def status_of(error: RagError) -> int:
    return next((status for kind, status in STATUSES if isinstance(error, kind)), 500)


async def _answered(request: Request, error: Exception) -> JSONResponse:
    place = request.url.path, request.state.correlation_id
    match error:
        case RagError():
            return _response(problem(error, *place))
        case RequestValidationError():
            errors = [_invalid(each) for each in error.errors()]
            return _response(_problem(422, "invalid_request", errors[0]["detail"], *place, errors=errors))
        case HTTPException():
            return _response(_problem(error.status_code, "http", str(error.detail), *place))
        case _:
            _log.exception("%s failed", request.url.path)
            return _response(_problem(500, "internal", "the gateway failed; its log says why", *place))


def _problem(status: int, code: str, detail: str, instance: str, correlation_id: str, **more: object) -> dict[str, Any]:
    retryable = status in RETRYABLE
    return {
        "type": f"urn:rag-on-ray:problem:{code}",
        "title": TITLES.get(status, "Failed"),
        "status": status,
        "detail": detail,
        "instance": instance,
        "correlation_id": correlation_id,
        "error_type": code,
        "retryable": retryable,
        "recovery": ["retry_after"] if retryable else [],
        **{name: value for name, value in more.items() if value},
        "error": {"message": detail, "type": code, "code": code, "param": None},
    }


def _code(error: RagError) -> str:
    """`StageTimeoutError` is `stage_timeout`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(error).__name__.removesuffix("Error")).lower()


def _invalid(error: Mapping[str, Any]) -> dict[str, str]:
    pointer = "#/" + "/".join(str(part) for part in error["loc"] if part != "body")
    return {"pointer": pointer, "code": error["type"], "detail": f"{pointer[2:]}: {error['msg']}"}


def _response(body: Mapping[str, Any]) -> JSONResponse:
    headers = {"Retry-After": str(RETRY_AFTER)} if body["retryable"] else {}
    return JSONResponse(dict(body), body["status"], headers, MEDIA_TYPE)
