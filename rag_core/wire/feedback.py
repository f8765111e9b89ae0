"""The response to feedback: `/v1/feedback` and `rag feedback --json`."""

from uuid import UUID

from rag_core.wire.shape import Shape


class FeedbackId(Shape):
    """The id of feedback that was stored."""

    id: UUID
