"""Which rows of each table are erased with a user, a conversation, or everything that is older than a day.

The conditions refer to the table as `t`, and to these parameters:

user            the user's id, or null
eraser          the user who erases
before          a time, or null: older rows are erased
conversations   ids
hashes          of the conversations, in experiments
answers         ids that the clients received
jobs            ids
documents       ids
"""

from collections.abc import Mapping
from typing import LiteralString

# A segment is rewritten if some of its chunks have no document any more, or one that is erased.
REWRITTEN_SEGMENTS: LiteralString = """
array(select s.id from lexical_segments s where s.tenant = %(tenant)s
  and s.n_chunks > (select coalesce(sum(d.n_chunks), 0) from lexical_documents d
    where d.tenant = s.tenant and d.collection = s.collection and d.segment_id = s.id and not d.dead
      and d.document_id <> all(%(documents)s)))"""

OF_CONVERSATIONS: LiteralString = "t.conversation_id = any(%(conversations)s)"
OF_DOCUMENTS: LiteralString = "t.document_id = any(%(documents)s)"
OF_JOBS: LiteralString = "t.job_id = any(%(jobs)s)"

CONDITIONS: Mapping[str, LiteralString] = {
    "api_keys": "t.user_id = %(user)s",
    "audit_users": "t.user_id = %(user)s and t.user_id <> %(eraser)s",
    "conversations": "t.id = any(%(conversations)s)",
    "messages": OF_CONVERSATIONS,
    "participants": f"{OF_CONVERSATIONS} or t.name = %(user)s",
    "replies": "t.id = any(%(answers)s)",
    "feedback": "t.answer_id = any(%(answers)s) or t.user_id = %(user)s",
    "exposures": "t.answer_id = any(%(answers)s) or t.conversation = any(%(hashes)s) or t.created_at < %(before)s",
    "rate_limits": "t.user_id = %(user)s",
    "jobs": "t.id = any(%(jobs)s)",
    "job_items": f"{OF_JOBS} or {OF_DOCUMENTS} and t.uri <> ''",
    "job_events": f"{OF_JOBS} or (t.detail ->> 'document_id')::uuid = any(%(documents)s) and t.detail ->> 'uri' <> ''",
    "pushed_documents": OF_JOBS,
    "draft_parts": f"{OF_JOBS} or {OF_DOCUMENTS}",
    "documents": "t.id = any(%(documents)s)",
    "document_texts": OF_DOCUMENTS,
    "document_values": OF_DOCUMENTS,
    "chunks": OF_DOCUMENTS,
    "vectors": OF_DOCUMENTS,
    "mentions": OF_DOCUMENTS,
    "relations": OF_DOCUMENTS,
    "entities": """not exists (select from mentions m where m.tenant = t.tenant and m.collection = t.collection
  and m.entity = t.id and m.document_id <> all(%(documents)s))""",
    "lexical_documents": f"t.dead or {OF_DOCUMENTS}",
    "lexical_segments": f"t.id = any({REWRITTEN_SEGMENTS})",
    "lexical_postings": f"t.segment_id = any({REWRITTEN_SEGMENTS})",
}
"""The rows that are erased, by table. Those of the lexical index are written again without the erased documents."""

TENANT_CONDITIONS: Mapping[str, LiteralString] = {"audit_users": "t.user_id <> %(eraser)s"}
"""The rows that are erased with everything of a tenant, in the tables of which some rows stay."""

PARTLY_KEPT: Mapping[str, str] = {"audit_users": "the user who erases stays, as the author of that row of the audit"}
"""The tables of which some rows stay, even if everything of a tenant is erased, and why."""

REDACTIONS: Mapping[str, LiteralString] = {
    "job_items": "uri = '', reason = case when reason is null then null else 'erased' end, retryable = false",
    "job_events": """detail = detail || '{"uri": "", "reason": "erased"}'""",
}
"""The changes to rows of other users' jobs: the row stays, because the job counts it, but its texts are erased."""

KEPT: Mapping[str, str] = {
    "collections": "names of collections; `rag collections drop` deletes one",
    "sources": "addresses of sources; `rag sources drop` deletes one",
    "spaces": "names of embedding models",
    "vector_stores": "belong to a program, not to a user",
    "stored_vectors": "belong to a program, not to a user",
    "stored_vector_values": "belong to a program, not to a user",
}
"""The tables in which a purge of a tenant's user or conversation erases nothing, and why."""

EVIDENCE: Mapping[str, str] = {
    "audit": "the evidence of what was done, without the ids of users",
    "audit_heads": "the ends of the audit's chains",
}
"""The tables that are kept, even if everything of a tenant is erased, and why."""
