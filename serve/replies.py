"""The log of answers and experiments. A thread writes it, so that no answer waits for the store or fails with it."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from rag_core.config import OpenAIGenerator, Settings
from rag_core.encryption import PLAIN_TEXT, TextCipher
from rag_core.events import Listener, ignore_event
from rag_core.protocols import Answerer
from rag_core.storage.exposures import Exposure, Exposures
from rag_core.storage.postgres import Postgres
from rag_core.storage.replies import Replies, StoredReply
from rag_core.types import Query, Reply, conversation_id
from rag_core.wire.answer import count_tokens
from serve.row_queue import RowQueue

MAX_WAITING = 1_000
"""Rows that wait for the store; further ones are dropped."""

WRITE_TIMEOUT = 5.0
"""Seconds for each statement that writes replies or exposures."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What is stored about an answer: the reply, or the exposure of an experiment."""

    tenant: str
    id: str
    reply: StoredReply | None = None
    exposure: Exposure | None = None


class ReplyLog:
    """Stores rows in a thread, all that wait in one transaction. Rows that cannot be stored are only logged."""

    def __init__(self, postgres: Postgres, cipher: TextCipher = PLAIN_TEXT) -> None:
        self._postgres, self._cipher = postgres, cipher
        self._queue = RowQueue("replies", self._write_rows, MAX_WAITING)

    def add(self, tenant: str, reply: StoredReply) -> None:
        """Returns at once, and raises nothing if the store is unavailable."""
        self._add(Row(tenant=tenant, id=reply.id, reply=reply))

    def add_exposure(self, id: str, exposure: Exposure) -> None:
        """Adds the exposure of an answer, which can have failed. Returns at once, like `add`."""
        self._add(Row(tenant=exposure.tenant, id=id, exposure=exposure))

    def _add(self, row: Row) -> None:
        if not self._queue.add(row, MAX_WAITING):
            _log.warning("answer %s is not stored: %d answers wait for the store", row.id, MAX_WAITING)

    def wait(self, timeout: float) -> None:
        """Waits until the replies that were added are stored, at most `timeout` seconds."""
        self._queue.wait(timeout)

    def _write_rows(self, rows: Sequence[Row]) -> None:
        try:
            self._write(rows)
        except Exception as error:  # noqa: BLE001 - the thread must go on with later answers, whatever fails
            _log.warning("answers not stored (%d): %s", len(rows), error)

    def _write(self, rows: Sequence[Row]) -> None:
        with self._postgres.connect() as connection:
            for tenant, group in groupby(sorted(rows, key=attrgetter("tenant")), key=attrgetter("tenant")):
                own = list(group)
                replies = [row.reply for row in own if row.reply]
                Replies(connection, tenant, self._cipher).add(replies, WRITE_TIMEOUT)
                Exposures(connection, tenant).add({row.id: row.exposure for row in own if row.exposure}, WRITE_TIMEOUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedAnswerer:
    """An Answerer whose replies are added to a log, under the id that the client receives."""

    answerer: Answerer
    log: ReplyLog
    id: str
    settings: Settings
    pipeline_version: str

    async def answer(self, query: Query, emit: Listener = ignore_event) -> Reply:
        reply = await self.answerer.answer(query, emit)
        self.log.add(query.tenant, self._describe(reply))
        return reply

    def _describe(self, reply: Reply) -> StoredReply:
        answer, usage, generation = reply.answer, count_tokens(reply), self.settings.generation
        return StoredReply(
            id=self.id,
            question=reply.query.text,
            standalone=reply.standalone,
            collection=reply.query.collection,
            profile=self.settings.profile,
            pipeline_version=self.pipeline_version,
            model=generation.model if isinstance(generation, OpenAIGenerator) else "",
            chunk_ids=tuple(chunk.id for passage in reply.passages for chunk in passage.chunks),
            cited_ids=tuple(dict.fromkeys(citation.chunk_id for citation in answer.citations)),
            verdict=answer.verdict.grade,
            confidence=answer.confidence,
            finish=answer.finish,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            cached_tokens=usage.cached_tokens,
            seconds=reply.seconds,
            conversation_id=conversation_id(reply.query) if reply.query.session_id else None,
            user_id=reply.query.user_id,
        )
