"""The access log: one JSON line per request, in files of limited size."""

import json
import logging
import os
import time
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path

from starlette.types import Scope

from rag_core.telemetry.operation import Operation

FILE_NAMES = "access-{process}.log"
MAX_FILE_BYTES, OLD_FILES = 20_000_000, 4
UNMATCHED = "unmatched"
"""The route of a request that no route takes. Its path is not logged: a client can put anything there."""

_log = logging.getLogger("serve.access")
_log.addHandler(logging.NullHandler())
_log.propagate = False


def open_access_log(folder: Path) -> None:
    """Logs the requests of this process to a file in the folder, which is created if it is missing.

    A full file is renamed, and at most `OLD_FILES` of those are kept.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / FILE_NAMES.format(process=os.getpid())
    handler = RotatingFileHandler(file, maxBytes=MAX_FILE_BYTES, backupCount=OLD_FILES, encoding="utf-8")
    _log.handlers = [handler]
    _log.setLevel(logging.INFO)


def log_access(scope: Scope, operation: Operation, status: int) -> None:
    """Logs a request that has ended. `status` is that of the response, or 499 if the client disconnected early."""
    client, route = scope.get("client"), scope.get("route")
    line = {
        "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "method": scope["method"],
        "route": getattr(route, "path", UNMATCHED),
        "status": status,
        "client": client[0] if client else "",
        "tenant": operation.tenant,
        "duration_ms": round(1000 * (time.perf_counter() - operation.started), 1),
        "correlation_id": operation.correlation_id,
    }
    _log.info("%s", json.dumps(line))
