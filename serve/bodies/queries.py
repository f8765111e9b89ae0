"""The query of a request body."""

from math import inf

from rag_core.storage.filters import parse_filter
from rag_core.telemetry.operation import record_question
from rag_core.types import Query
from serve.authentication.caller import Caller
from serve.bodies.requests import SearchScope


def build_query(scope: SearchScope, text: str, caller: Caller, session_id: str = "", answer_id: str = "") -> Query:
    """`answer_id` is the id that the client receives. Raises FilterError if the filter breaks the grammar."""
    record_question(text)
    return Query(
        text=text,
        tenant=caller.tenant,
        collection=scope.collection,
        filters=parse_filter(scope.filters) if scope.filters is not None else None,
        groups=caller.groups,
        session_id=session_id,
        user_id=caller.user,
        answer_id=answer_id,
        timeout=scope.timeout_ms / 1000 if scope.timeout_ms else inf,
    )
