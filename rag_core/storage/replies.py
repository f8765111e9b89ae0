"""The answers of gateways, and the feedback of their readers. Both are deleted after `retention.replies` days."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias, get_args
from uuid import UUID, uuid4

import psycopg
from psycopg import Connection
from psycopg.rows import dict_row

from rag_core.encryption import PLAIN_TEXT, TextCipher
from rag_core.errors import IdempotencyError, NotFoundError, StoreError, UsageError
from rag_core.storage.audit import Change, record
from rag_core.storage.postgres import LIMIT_TIME, transaction
from rag_core.types import Finish, Grade

Signal: TypeAlias = Literal["copied", "opened_source"]
"""An action of a reader: the answer was copied, or one of its sources was opened."""

ADD_REPLY = """
insert into replies (tenant, id, question, standalone, collection_name, profile, pipeline_version, model, chunk_ids,
  cited_ids, verdict, confidence, finish, prompt_tokens, completion_tokens, cached_tokens, seconds, conversation_id,
  user_id)
values (%(tenant)s, %(id)s, %(question)s, %(standalone)s, %(collection)s, %(profile)s, %(pipeline_version)s, %(model)s,
  %(chunk_ids)s, %(cited_ids)s, %(verdict)s, %(confidence)s, %(finish)s, %(prompt_tokens)s, %(completion_tokens)s,
  %(cached_tokens)s, %(seconds)s, %(conversation_id)s, %(user_id)s)
on conflict do nothing"""
# Without a user, callers are not authenticated: every one is an administrator.
HAS_REPLY = """
select from replies where tenant = %(tenant)s and id = %(answer_id)s and %(user)s in ('', user_id) for key share"""
EXPIRE_KEY = """
update feedback set idempotency_key = '' where tenant = %(tenant)s and user_id = %(user)s and idempotency_key = %(key)s
  and %(key)s <> '' and created_at < now() - interval '24 hours'"""
ADD_FEEDBACK = """
insert into feedback (tenant, id, answer_id, rating, stars, comment, corrected_answer, signals, idempotency_key,
  fingerprint, user_id)
values (%(tenant)s, %(id)s, %(answer_id)s, %(rating)s, %(stars)s, %(comment)s, %(corrected_answer)s, %(signals)s,
  %(key)s, %(fingerprint)s, %(user)s)
on conflict (tenant, user_id, idempotency_key) where idempotency_key <> '' do nothing returning id"""
FEEDBACK_OF_KEY = """
select id, fingerprint from feedback
where tenant = %(tenant)s and user_id = %(user)s and idempotency_key = %(key)s"""
# The latest rating and stars count, because people change their minds.
RATED_REPLIES = """
select r.id, r.question, r.standalone, r.collection_name as collection, r.profile, r.pipeline_version, r.model,
  r.chunk_ids, r.cited_ids, r.verdict, r.confidence, r.finish, r.prompt_tokens, r.completion_tokens, r.cached_tokens,
  r.seconds, r.conversation_id, r.user_id, r.created_at,
  (select f.rating from feedback f where f.tenant = r.tenant and f.answer_id = r.id and f.rating is not null
    order by f.created_at desc, f.id limit 1) as rating,
  (select f.stars from feedback f where f.tenant = r.tenant and f.answer_id = r.id and f.stars is not null
    order by f.created_at desc, f.id limit 1) as stars,
  coalesce((select f.corrected_answer from feedback f
    where f.tenant = r.tenant and f.answer_id = r.id and f.corrected_answer <> ''
    order by f.created_at desc, f.id limit 1), '') as corrected_answer,
  array(select f.comment from feedback f where f.tenant = r.tenant and f.answer_id = r.id and f.comment <> ''
    order by f.created_at, f.id) as comments,
  array(select distinct signal from feedback f cross join unnest(f.signals) signal
    where f.tenant = r.tenant and f.answer_id = r.id order by signal) as signals
from replies r where r.tenant = %(tenant)s order by r.created_at, r.id"""
QUESTIONS, OPINIONS = ("question", "standalone"), ("comment", "corrected_answer")
"""The columns of replies and of feedback that are encrypted. The id of the answer is their place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredReply:
    """An answer without its text. `chunk_ids` are those of its passages, best first; `model` can be empty.

    `conversation_id` is None without a session. `user_id` is empty for an unknown user.
    """

    id: str
    question: str
    standalone: str
    collection: str
    profile: str
    pipeline_version: str
    model: str
    chunk_ids: tuple[UUID, ...]
    cited_ids: tuple[UUID, ...]
    verdict: Grade
    confidence: float | None
    finish: Finish
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    seconds: float
    conversation_id: UUID | None = None
    user_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatedReply(StoredReply):
    """An answer and its feedback: the latest rating, stars and corrected answer, all comments and signals."""

    created_at: datetime
    rating: int | None = None
    stars: int | None = None
    corrected_answer: str = ""
    comments: tuple[str, ...] = ()
    signals: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """One person's opinion of an answer. `rating` is -1, 0 or 1, `stars` is from 1 to 5; None is no opinion."""

    answer_id: str
    rating: int | None = None
    stars: int | None = None
    comment: str = ""
    corrected_answer: str = ""
    signals: tuple[Signal, ...] = ()

    def __post_init__(self) -> None:
        """Raises UsageError if a value breaks a rule, or if there is no opinion at all."""
        if self.rating not in (None, -1, 0, 1):
            raise UsageError(f"rating must be -1, 0 or 1, got {self.rating!r}")
        if self.stars not in (None, *range(1, 6)):
            raise UsageError(f"stars must be a whole number from 1 to 5, got {self.stars!r}")
        if unknown := [signal for signal in self.signals if signal not in get_args(Signal)]:
            raise UsageError(f"signals must be {' or '.join(get_args(Signal))}, got {unknown[0]!r}")
        texts = self.comment.strip() or self.corrected_answer.strip()
        if self.rating is None and self.stars is None and not texts and not self.signals:
            raise UsageError("feedback must have a rating, stars, a comment, a corrected_answer or signals")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFeedback:
    """`replayed`: an earlier request with the same idempotency key had stored it."""

    id: UUID
    replayed: bool


class Replies:
    """The replies of one tenant, over one connection. `cipher` encrypts questions, comments and corrections."""

    def __init__(self, connection: Connection, tenant: str, cipher: TextCipher = PLAIN_TEXT) -> None:
        self._connection, self._tenant, self._cipher = connection, tenant, cipher

    def add(self, replies: Sequence[StoredReply], timeout: float) -> None:
        """Stores new replies in one transaction. Each statement has `timeout` seconds. Raises StoreError."""
        rows = [self._encrypt({**asdict(reply), "tenant": self._tenant}, reply.id, QUESTIONS) for reply in replies]
        rows = [{**row, "chunk_ids": list(row["chunk_ids"]), "cited_ids": list(row["cited_ids"])} for row in rows]
        try:
            with transaction(self._connection, self._tenant), self._connection.cursor() as cursor:
                cursor.execute(LIMIT_TIME, {"timeout_ms": round(1000 * timeout)})
                cursor.executemany(ADD_REPLY, rows)
        except psycopg.Error as error:
            raise StoreError(f"the store refused the replies: {str(error).strip()}") from error

    def add_feedback(
        self, feedback: Feedback, idempotency_key: str = "", fingerprint: str = "", user: str = ""
    ) -> StoredFeedback:
        """Stores feedback. If the user used the key in the last 24 hours, returns that feedback and adds nothing.

        Raises NotFoundError if the user has no such answer, and IdempotencyError if the user used the key with another
        fingerprint. Without a user, the answer can be any one of the tenant.
        """
        keyed = {"key": idempotency_key, "fingerprint": fingerprint, "user": user}
        texts = self._encrypt(asdict(feedback), feedback.answer_id, OPINIONS)
        scope = {**texts, **keyed, "tenant": self._tenant, "id": uuid4(), "signals": list(feedback.signals)}
        with transaction(self._connection, self._tenant):
            if self._connection.execute(HAS_REPLY, scope).fetchone() is None:
                raise NotFoundError(f"no answer {feedback.answer_id!r}: it is unknown, or older than retention.replies")
            self._connection.execute(EXPIRE_KEY, scope)
            if self._connection.execute(ADD_FEEDBACK, scope).fetchone():
                change = Change(operation="feedback.give", kind="answer", ids=[feedback.answer_id])
                record(self._connection, self._tenant, change)
                return StoredFeedback(id=scope["id"], replayed=False)
            id, earlier = self._connection.execute(FEEDBACK_OF_KEY, scope).fetchone() or (scope["id"], "")
            if earlier != fingerprint:
                raise IdempotencyError(f"idempotency key {idempotency_key!r} was used before, for another request")
            return StoredFeedback(id=id, replayed=True)

    def read(self) -> Iterator[RatedReply]:
        """Yields all replies with their feedback, oldest first. Raises EncryptionError if one cannot be decrypted."""
        with transaction(self._connection, self._tenant), self._connection.cursor(row_factory=dict_row) as cursor:
            for row in cursor.stream(RATED_REPLIES, {"tenant": self._tenant}):
                lists = ("chunk_ids", "cited_ids", "signals")
                yield RatedReply(**self._decrypt(row) | {name: tuple(row[name]) for name in lists})

    def _encrypt(self, row: Mapping[str, Any], answer_id: str, names: Sequence[str]) -> dict[str, Any]:
        place = (self._tenant, answer_id)
        return {**row, **{name: self._cipher.encrypt(row[name], (*place, name)) for name in names}}

    def _decrypt(self, row: Mapping[str, Any]) -> dict[str, Any]:
        place = (self._tenant, row["id"])
        texts = {name: self._cipher.decrypt(row[name], (*place, name)) for name in (*QUESTIONS, "corrected_answer")}
        comments = tuple(self._cipher.decrypt(comment, (*place, "comment")) for comment in row["comments"])
        return {**row, **texts, "comments": comments}
