"""What every route answers with."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fastapi import Response

from rag_core.types import StageReport
from rag_core.wire import json_bytes

_STORE = re.compile(r"(?:(?:cannot (?:use|reach|read from)|lost) the store|the embedded Postgres)\b.*", re.DOTALL)
STORE_AWAY = "the store cannot be reached"
_FOREIGN = re.compile(r"\b([A-Z]\w*(?:Error|Exception|Timeout|Interrupt)): .*", re.DOTALL)


def as_json(body: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(json_bytes(body), status, headers, "application/json")


def server_timing(stages: Sequence[StageReport]) -> dict[str, str]:
    """The header, for browsers to draw: milliseconds by stage, parts of stages included. Names are tokens there."""
    ran = [report for report in stages if not report.skipped]
    return {"Server-Timing": ", ".join(f"{_token(report.stage)};dur={1000 * report.seconds:.1f}" for report in ran)}


def public(stages: Sequence[StageReport]) -> list[StageReport]:
    """As clients may read them."""
    return [replace(report, error=public_words(report.error)) if report.error else report for report in stages]


def public_words(text: str) -> str:
    """Without the words of an error that is none of ours, as a model or leg of anybody's own may raise it: its kind."""
    return _FOREIGN.sub(r"\1", without_store(text))


def without_store(text: str) -> str:
    """Of a store that is away only that: where it is, and as whom it is asked, is in the log alone."""
    return _STORE.sub(STORE_AWAY, text)


def _token(name: str) -> str:
    return re.sub(r"[^0-9A-Za-z_-]", "_", name)
