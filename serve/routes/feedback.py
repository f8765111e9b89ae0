"""`/v1/feedback`: what people think of an answer."""

from fastapi import APIRouter, Response

from rag_core.storage.replies import Replies
from rag_core.wire.feedback import FeedbackId
from serve.bodies.feedback import FeedbackBody
from serve.bodies.openapi import BODY_PROBLEMS, success_response
from serve.http.dependencies import Chatter, CurrentServices
from serve.http.request_headers import IdempotencyKey
from serve.http.responses import json_response

router = APIRouter()

REPLY_SECONDS = 1.0
"""The longest time that feedback waits for its answer to be stored."""


@router.post("/v1/feedback", status_code=201, responses=success_response(FeedbackId, BODY_PROBLEMS, status=201))
def give_feedback(body: FeedbackBody, caller: Chatter, services: CurrentServices, key: IdempotencyKey) -> Response:
    """Stores feedback on an answer of the caller. An answer can have any number; the latest rating and stars count.

    The gateway knows an answer for `retention.replies` days, unless `telemetry.replies` is false. A request that is
    repeated within 24 hours with the same `Idempotency-Key` returns the first id. The same key with another request is
    an error (422).
    """
    services.replies.wait(REPLY_SECONDS)
    with services.postgres.connect() as connection:
        replies = Replies(connection, caller.tenant, services.cipher)
        stored = replies.add_feedback(body.feedback, key, body.fingerprint, caller.user)
    headers = {"Idempotency-Replayed": "true"} if stored.replayed else {}
    return json_response(FeedbackId(id=stored.id), 201, headers)
