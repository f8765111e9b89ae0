"""`/v1/sources/{chunk_id}`: what a citation points at, for programs and for readers."""

from collections.abc import Mapping
from html import escape
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, ConfigDict, Field

from rag_core.errors import UsageError
from serve.bodies.openapi import shows
from serve.bodies.responses import Quoted
from serve.http.connections import catalog
from serve.http.dependencies import Served, Who
from serve.http.responses import as_json

router = APIRouter()

AROUND = 2000
"""Characters that are shown before the span, and behind it."""

# The text is anybody's: nothing of it may run, load or lead away.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Vary": "Accept",
}
PAGE = """<!doctype html>
<html lang="{language}">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>body {{ font: 1rem/1.5 system-ui; max-width: 45rem; margin: 2rem auto; padding: 0 1rem }}
pre {{ font: inherit; white-space: pre-wrap; overflow-wrap: anywhere }}</style>
<h1 dir="auto">{title}</h1>
<p>{url}</p>
<pre dir="auto">{before}<mark id="quote">{quote}</mark>{after}</pre>
</html>
"""


SHOWS = shows(Quoted)
SHOWS[200]["content"] = {"text/html": {"schema": {"type": "string"}}}


class Span(BaseModel):
    """Offsets in the document's text, in code points; without them those of the chunk."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    start: int | None = Field(None, ge=0)
    end: int | None = Field(None, ge=1)


@router.get("/v1/sources/{chunk_id}", responses=SHOWS)
def source(
    chunk_id: UUID, span: Annotated[Span, Query()], who: Who, graph: Served, accept: Annotated[str, Header()] = "*/*"
) -> Response:
    """The span with the text around it: as JSON, or as a page for who asks for HTML and not for JSON."""
    with catalog(graph, who) as known:
        shown = shown_span(known.readable_span(chunk_id, who.groups), span)
    if "text/html" in accept and "application/json" not in accept:
        return HTMLResponse(page(shown), headers=HEADERS)
    return as_json(shown, headers=HEADERS)


def shown_span(stored: Mapping[str, Any], span: Span) -> dict[str, Any]:
    """UsageError for a span that the document does not have."""
    text, metadata = stored["text"], stored["metadata"]
    start = stored["start"] if span.start is None else span.start
    end = stored["end"] if span.end is None else span.end
    if not start < end <= len(text):
        raise UsageError(f"a span must have 0 <= start < end <= {len(text)}, got {start} to {end}")
    return {
        **{name: value for name, value in stored.items() if name not in ("text", "metadata")},
        "page": metadata.get("page"),
        "section": metadata.get("section"),
        "start": start,
        "end": end,
        "before": text[max(0, start - AROUND) : start],
        "quote": text[start:end],
        "after": text[end : end + AROUND],
    }


def page(shown: Mapping[str, Any]) -> str:
    """`shown` is what the JSON is."""
    parts = ("language", "title", "url", "before", "quote", "after")
    return PAGE.format(**{part: escape(shown[part]) for part in parts})
