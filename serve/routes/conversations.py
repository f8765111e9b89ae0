"""`/v1/conversations`: lists, shows and erases the stored conversations of the caller's groups."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query, Response
from starlette.convertors import StringConvertor, register_url_convertor

from rag_core.answering.split import hash_conversation
from rag_core.storage.conversation_list import ConversationList
from rag_core.wire.conversations import Conversation, Conversations, Message, Messages
from serve.authentication.caller import Caller
from serve.bodies.fields import ConversationId
from serve.bodies.openapi import success_response
from serve.http.cursors import PageParameters, build_listing
from serve.http.dependencies import Chatter, CurrentServices, MemoryDeleter
from serve.http.responses import json_response
from serve.services import Services

router = APIRouter()

AFTER_ALL = "infinity 00000000-0000-0000-0000-000000000000"
"""The key before the first row: conversations are listed by falling time of their last message."""
ABOVE_ALL_MESSAGES = str(2**31 - 1)
REPLY_SECONDS = 1.0
"""The longest time that an erasure waits for answers to be stored."""


class IdConvertor(StringConvertor):
    """An id of a conversation in a path: it can have slashes, but `/messages` at the end is another resource."""

    regex = r"(?!.*/messages$).+"


register_url_convertor("conversation", IdConvertor())


@router.get("/v1/conversations", responses=success_response(Conversations))
def conversations(page: Annotated[PageParameters, Query()], caller: Chatter, services: CurrentServices) -> Response:
    """Lists conversations, the one with the latest message first."""
    listing = build_listing(services, caller, "key", "conversations")
    before = listing.decode_cursor(page.cursor, AFTER_ALL)
    with _open_list(services, caller) as stored:
        rows, paging = listing.split_page(stored.conversations(page.fetch_limit, before), page.limit)
    return json_response(Conversations(data=[Conversation.from_row(row) for row in rows], **paging))


@router.get("/v1/conversations/{id:path}/messages", responses=success_response(Messages))
def messages(
    id: ConversationId, page: Annotated[PageParameters, Query()], caller: Chatter, services: CurrentServices
) -> Response:
    """Returns the messages of a conversation, newest first."""
    listing = build_listing(services, caller, "n", "messages", id)
    before = int(listing.decode_cursor(page.cursor, ABOVE_ALL_MESSAGES))
    with _open_list(services, caller) as stored:
        rows, paging = listing.split_page(stored.messages(id, page.fetch_limit, before), page.limit)
    now = datetime.now(UTC)
    return json_response(Messages(data=[Message.describe(row, now) for row in rows], **paging))


@router.delete("/v1/conversations/{id:conversation}", status_code=204)
def erase(id: ConversationId, caller: MemoryDeleter, services: CurrentServices) -> None:
    """Erases a conversation with everything derived from it: its answers, their feedback, their part in experiments.

    A turn that is being answered meanwhile begins a new conversation under the same id.
    """
    services.replies.wait(REPLY_SECONDS)
    with _open_list(services, caller) as stored:
        stored.erase(id, hash_conversation(caller.tenant, id))


@contextmanager
def _open_list(services: Services, caller: Caller) -> Iterator[ConversationList]:
    with services.postgres.connect() as connection:
        yield ConversationList(connection, caller.tenant, caller.groups, services.cipher)
