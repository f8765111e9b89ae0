"""`/v1/sources/{chunk_id}`: the span of text that a citation links to, as JSON and as an HTML page.

It is the cited text of a chunk, not one of the sources that documents are ingested from.
"""

from collections.abc import Mapping
from html import escape
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, ConfigDict, Field

from rag_core.errors import UsageError
from rag_core.telemetry.operation import record_documents
from rag_core.wire.documents import Quoted
from serve.bodies.openapi import success_response
from serve.http.connections import open_catalog
from serve.http.dependencies import CurrentServices, Reader
from serve.http.responses import json_response, prefers_html

router = APIRouter()

CONTEXT_CHARS = 2000
"""Characters of the document that are shown before the span, and as many after it."""

# Documents are untrusted: a page must not run or load anything from them, and must not reveal its address to linked
# sites.
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

RESPONSES = success_response(Quoted)
RESPONSES[200]["content"] = {"text/html": {"schema": {"type": "string"}}}


class Span(BaseModel):
    """Offsets in the document's text, in code points. The default is the chunk's span."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    start: int | None = Field(None, ge=0)
    end: int | None = Field(None, ge=1)


@router.get("/v1/sources/{chunk_id}", responses=RESPONSES)
def source(
    chunk_id: UUID,
    span: Annotated[Span, Query()],
    caller: Reader,
    services: CurrentServices,
    accept: Annotated[str, Header()] = "*/*",
) -> Response:
    """Returns the span with the text around it: an HTML page if the client accepts HTML but not JSON, else JSON."""
    with open_catalog(services, caller) as catalog:
        row = catalog.readable_span(chunk_id, caller.groups)
    record_documents([row["document_id"]])
    body = quote_span(row, span)
    if prefers_html(accept):
        return HTMLResponse(render_page(body), headers=HEADERS)
    return json_response(body, headers=HEADERS)


def quote_span(row: Mapping[str, Any], span: Span) -> Quoted:
    """The response. `row` is a chunk with its document's text; `span` replaces the chunk's offsets.

    Raises UsageError unless 0 <= start < end <= length of the text.
    """
    text, metadata = row["text"], row["metadata"]
    start = row["start"] if span.start is None else span.start
    end = row["end"] if span.end is None else span.end
    if not start < end <= len(text):
        raise UsageError(f"a span must have 0 <= start < end <= {len(text)}, got {start} to {end}")
    quoted = {
        "page": metadata.get("page"),
        "section": metadata.get("section"),
        "start": start,
        "end": end,
        "before": text[max(0, start - CONTEXT_CHARS) : start],
        "quote": text[start:end],
        "after": text[end : end + CONTEXT_CHARS],
    }
    return Quoted.from_row({**row, **quoted})


def render_page(quoted: Quoted) -> str:
    names = ("language", "title", "url", "before", "quote", "after")
    return PAGE.format(**{name: escape(getattr(quoted, name)) for name in names})
