"""Scripted conversations with a knowledge base, each in a session of its own."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias
from uuid import uuid4

from rag_core.answering.split import hash_conversation
from rag_core.errors import NotFoundError, RagError, describe_error
from rag_core.evaluation.scripted_conversations import ScriptedConversation
from rag_core.evaluation.scripted_replies import MeasuredTurn, ScriptedReply, reduce_reply
from rag_core.ingestion.sources.local import path_from_uri
from rag_core.knowledge_base import KnowledgeBase
from rag_core.storage.conversation_list import ConversationList
from rag_core.storage.postgres import Postgres

Ask: TypeAlias = Callable[[str, str], ScriptedReply]
"""Answers a question in a session; without history if the session is empty."""


def run_scripts(
    ask: Ask,
    conversations: Sequence[ScriptedConversation],
    callers: int,
    forget: Callable[[str], None] = lambda _session_id: None,
) -> Iterator[MeasuredTurn]:
    """Yields the turns in rounds: all first turns, then all second ones, so that all sessions are open together.

    Within a round, `callers` turns are asked concurrently. At the end, `forget` is called with each session id.
    """
    run = uuid4().hex
    try:
        with ThreadPoolExecutor(callers) as pool:
            for position in range(1, 1 + max(len(conversation.turns) for conversation in conversations)):
                longer = [conversation for conversation in conversations if len(conversation.turns) >= position]
                yield from pool.map(partial(_ask_turn, ask, run, position), longer)
    finally:
        for conversation in conversations:
            forget(_session_id(run, conversation))


def erase_session(postgres: Postgres, tenant: str, session_id: str) -> None:
    """Deletes the stored conversation of a session of `run_scripts`, if there is one."""
    with postgres.connect() as connection, suppress(NotFoundError):
        ConversationList(connection, tenant, ()).erase(session_id, partial(hash_conversation, tenant))


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionAsker:
    """Asks a knowledge base about a collection that was ingested from the folder `corpus`."""

    knowledge: KnowledgeBase
    collection: str
    corpus: Path

    def ask(self, question: str, session_id: str) -> ScriptedReply:
        started = time.perf_counter()
        try:
            reply = self.knowledge.ask(question, self.collection, session_id=session_id)
        except RagError as error:
            return ScriptedReply(error=describe_error(error), seconds=time.perf_counter() - started)
        return reduce_reply(reply, self._document)

    def _document(self, uri: str) -> str:
        return Path(path_from_uri(uri)).relative_to(self.corpus.resolve()).as_posix()


def _ask_turn(ask: Ask, run: str, position: int, conversation: ScriptedConversation) -> MeasuredTurn:
    turn = conversation.turns[position - 1]
    reply, alone = ask(turn.question, _session_id(run, conversation)), None
    if turn.expect == "answer":
        alone = ask(turn.question, "") if position > 1 else reply
    return MeasuredTurn(conversation=conversation.id, position=position, turn=turn, reply=reply, alone=alone)


def _session_id(run: str, conversation: ScriptedConversation) -> str:
    return f"{run}-{conversation.id}"
