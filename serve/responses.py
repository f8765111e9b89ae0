"""What every route answers with."""

from collections.abc import Mapping
from typing import Any

from fastapi import Response

from rag_core.wire import json_text


def as_json(body: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(json_text(body), status, headers, "application/json")
