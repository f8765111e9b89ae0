"""The row of a request in the audit."""

from contextlib import suppress
from uuid import UUID

from starlette.types import Scope

from rag_core.telemetry.operation import Operation
from serve.http.access_log import UNMATCHED
from serve.telemetry import request_status


def audit_request(scope: Scope, operation: Operation, status: int) -> None:
    """Adds the row of a request that has ended, unless it needs none.

    Of the path only the route and ids are kept: a client can put anything there.
    """
    for value in scope.get("path_params", {}).values():
        with suppress(ValueError):
            operation.resources.append(str(UUID(str(value))))
    detail = {
        "method": scope["method"],
        "route": getattr(scope.get("route"), "path", UNMATCHED),
        "http_status": status,
    }
    audit = scope["app"].state.profiles.own.services.audit
    audit.add(operation, request_status(operation, status), detail)
