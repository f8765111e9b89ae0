"""Stored answers."""

from rag_core.storage.replies import StoredReply


def stored_reply(id: str) -> StoredReply:
    return StoredReply(
        id=id,
        question="How often?",
        standalone="How often?",
        collection="default",
        profile="default",
        pipeline_version="default:v1+0",
        model="",
        chunk_ids=(),
        cited_ids=(),
        verdict="supported",
        confidence=None,
        finish="stop",
        prompt_tokens=0,
        completion_tokens=0,
        cached_tokens=0,
        seconds=1.0,
    )
