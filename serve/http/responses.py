"""Parts of responses that several routes share."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from fastapi import Response

from rag_core.types import StageReport
from rag_core.wire.shape import Shape, json_bytes
from serve.public_errors import public_message


def json_response(
    body: Shape | Mapping[str, object], status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(json_bytes(body), status, headers, "application/json")


def prefers_html(accept: str) -> bool:
    """True for the header `Accept` of a browser, and of other clients that accept HTML but not JSON."""
    return "text/html" in accept and "application/json" not in accept


def server_timing(stages: Sequence[StageReport]) -> dict[str, str]:
    """The `Server-Timing` header, which browsers chart: milliseconds by stage. Stage names become valid tokens."""
    timings = [
        f"{re.sub(r'[^0-9A-Za-z_-]', '_', report.stage)};dur={1000 * report.seconds:.1f}"
        for report in stages
        if not report.skipped
    ]
    return {"Server-Timing": ", ".join(timings)}


def public_stages(stages: Sequence[StageReport]) -> list[StageReport]:
    """The reports with error messages that clients may read."""
    return [replace(report, error=public_message(report.error)) if report.error else report for report in stages]
