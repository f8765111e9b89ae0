"""Stored answers."""

from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from rag_core.storage.replies import RatedReply, StoredReply


def stored_reply(id: str, **changes: Any) -> StoredReply:
    reply = StoredReply(
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
    return replace(reply, **changes)


def rated_reply(id: str, hour: int = 12, **changes: Any) -> RatedReply:
    """An answer of one day, which nobody has rated unless the changes say so."""
    reply = RatedReply(**asdict(stored_reply(id)), created_at=datetime(2026, 11, 26, hour, tzinfo=UTC))
    return replace(reply, **changes)
