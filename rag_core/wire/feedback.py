"""The shape of feedback that was stored: `/v1/feedback` and `rag feedback --json`."""

from uuid import UUID

from rag_core.wire.shape import Shape


class StoredFeedback(Shape):
    id: UUID
