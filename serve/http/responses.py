"""What every route answers with."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fastapi import Response

from rag_core.types import StageReport
from rag_core.wire import json_bytes
from serve.public_errors import public_message


def as_json(body: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(json_bytes(body), status, headers, "application/json")


def server_timing(stages: Sequence[StageReport]) -> dict[str, str]:
    """The header, for browsers to draw: milliseconds by stage, parts of stages included. Names are tokens there."""
    ran = [report for report in stages if not report.skipped]
    return {"Server-Timing": ", ".join(f"{_token(report.stage)};dur={1000 * report.seconds:.1f}" for report in ran)}


def public_stages(stages: Sequence[StageReport]) -> list[StageReport]:
    """The reports with errors that clients may read."""
    return [replace(report, error=public_message(report.error)) if report.error else report for report in stages]


def _token(name: str) -> str:
    return re.sub(r"[^0-9A-Za-z_-]", "_", name)
