"""The query that a request asks."""

from math import inf

from rag_core.storage.filters import parsed_filter
from rag_core.telemetry.operation import record_question as tell_question
from rag_core.types import Query
from serve.bodies.requests import Asked
from serve.http.access import Caller


def query(asked: Asked, text: str, who: Caller, session_id: str = "") -> Query:
    """FilterError for a filter that the grammar does not allow."""
    tell_question(text)
    return Query(
        text=text,
        tenant=who.tenant,
        collection=asked.collection,
        filters=parsed_filter(asked.filters) if asked.filters is not None else None,
        groups=who.groups,
        session_id=session_id,
        timeout=asked.timeout_ms / 1000 if asked.timeout_ms else inf,
    )
