"""The uri whose suffix names the format of a source's bytes."""

from rag_core.ingestion.given_documents import GIVEN_MEDIA_TYPE
from rag_core.ingestion.sources.given import GivenSource
from rag_core.ingestion.sources.json_lines import JsonLinesSource
from rag_core.ingestion.sources.pushed import PushedSource, parser_uri
from rag_core.protocols import Source


def format_uri(source: Source, uri: str) -> str:
    """The document's uri, with the suffix of its media type if a request pushed it; empty for a given document."""
    if brings_chunks(source, uri):
        return ""
    return parser_uri(source.documents[uri]) if isinstance(source, PushedSource) else uri


def brings_chunks(source: Source, uri: str) -> bool:
    """True if the document is in the format of given documents."""
    if isinstance(source, PushedSource):
        return source.documents[uri].media_type == GIVEN_MEDIA_TYPE
    return isinstance(source, GivenSource | JsonLinesSource)
