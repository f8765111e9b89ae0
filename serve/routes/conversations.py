"""`/v1/conversations`: lists, shows, shares and erases the stored conversations of the caller."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import Field
from starlette.convertors import StringConvertor, register_url_convertor

from rag_core.answering.split import hash_conversation
from rag_core.errors import ScopeError
from rag_core.storage.conversation_list import ConversationList
from rag_core.storage.conversation_references import format_reference
from rag_core.wire.conversations import Conversation, Conversations, Message, Messages, Participants
from serve.authentication.caller import Caller
from serve.bodies.conversations import Invitation
from serve.bodies.fields import ConversationId, Text
from serve.bodies.openapi import BODY_PROBLEMS, success_response
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
    """An id of a conversation in a path: it can have slashes, and ends before the name of a resource below it."""

    regex = r"(?!.*/(?:messages|participants)$).+"


register_url_convertor("conversation", IdConvertor())


class ConversationFilter(PageParameters):
    """The query parameters of the listing of conversations."""

    user: Text = Field("", description="those of this user; another user's require the scope `admin`")


@router.get("/v1/conversations", responses=success_response(Conversations))
def conversations(page: Annotated[ConversationFilter, Query()], caller: Chatter, services: CurrentServices) -> Response:
    """Lists the conversations that the caller opened or participates in, the one with the latest message first."""
    if page.user not in ("", caller.user) and "admin" not in caller.scopes:
        raise ScopeError("admin")
    listing = build_listing(services, caller, "key", "conversations", page.user)
    before = listing.decode_cursor(page.cursor, AFTER_ALL)
    with _open_list(services, caller) as stored:
        rows, paging = listing.split_page(stored.conversations(page.fetch_limit, before, page.user), page.limit)
    return json_response(Conversations(data=[Conversation.from_row(row) for row in rows], **paging))


@router.get("/v1/conversations/{id:path}/messages", responses=success_response(Messages))
def messages(
    id: ConversationId, page: Annotated[PageParameters, Query()], caller: Chatter, services: CurrentServices
) -> Response:
    """Returns the messages of a conversation, newest first, without those of groups that the caller lacks."""
    listing = build_listing(services, caller, "n", "messages", id)
    before = int(listing.decode_cursor(page.cursor, ABOVE_ALL_MESSAGES))
    with _open_list(services, caller) as stored:
        rows, paging = listing.split_page(stored.messages(id, page.fetch_limit, before), page.limit)
    now = datetime.now(UTC)
    return json_response(Messages(data=[Message.describe(row, now) for row in rows], **paging))


@router.put("/v1/conversations/{id:path}/participants", responses=success_response(Participants, BODY_PROBLEMS))
def set_participants(id: ConversationId, body: Invitation, caller: Chatter, services: CurrentServices) -> Response:
    """Replaces the participants of a conversation: users who can read and continue it.

    Only the user who opened the conversation can set them.
    """
    users = list(dict.fromkeys(body.users))
    with _open_list(services, caller) as stored:
        reference = format_reference(stored.invite(id, users))
    return json_response(Participants(id=reference, users=users))


@router.delete("/v1/conversations/{id:conversation}", status_code=204)
def erase(id: ConversationId, caller: MemoryDeleter, services: CurrentServices) -> None:
    """Erases a conversation with everything derived from it: its answers, their feedback, their part in experiments.

    A turn that is being answered meanwhile begins a new conversation under the same id. Participants cannot erase it;
    callers with the scope `admin` can.
    """
    services.replies.wait(REPLY_SECONDS)
    with _open_list(services, caller) as stored:
        stored.erase(id, partial(hash_conversation, caller.tenant))


@contextmanager
def _open_list(services: Services, caller: Caller) -> Iterator[ConversationList]:
    with services.postgres.connect() as connection:
        sees_all = "admin" in caller.scopes
        yield ConversationList(connection, caller.tenant, caller.groups, caller.user, sees_all, services.cipher)
