"""The engine: from a question, in its conversation, to an answer as a dictionary."""

from datetime import UTC, datetime
from functools import cached_property
from types import TracebackType
from typing import Any
from uuid import UUID, uuid5

from rag_core.config import Settings
from rag_core.contract.indexing import builtin_errors
from rag_core.knowledge_base import KnowledgeBase
from rag_core.settings import load_settings
from rag_core.types import DEFAULT_COLLECTION
from rag_core.wire.answer import Answered, create_answer_id

_USERS = UUID("b3c8b4f0-52c7-5d0b-9d55-0d2f1f0f8a6e")


class Engine:
    """Answers questions over one collection, by the settings of the environment. Connections stay open until `close`.

    The store, the models and the conversations are those of `rag_core.KnowledgeBase`.
    """

    def __init__(self, collection: str = DEFAULT_COLLECTION) -> None:
        """Raises RuntimeError if the settings are invalid."""
        with builtin_errors("the engine cannot start"):
            self._settings: Settings = load_settings()
        self._collection = collection

    def __enter__(self) -> "Engine":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if "_knowledge" in self.__dict__:
            self._knowledge.close()

    def answer(
        self, question: str, conversation_id: str | None = None, user_email: str | None = None
    ) -> dict[str, Any]:
        """The body of `/v1/answer`. With a `conversation_id`, the history is loaded and the turn is stored.

        The store knows the user by a hash of the e-mail address. Raises ValueError for an empty question, and
        RuntimeError if the work fails.
        """
        user = hash_email(self._settings.tenant, user_email) if user_email else ""
        id = create_answer_id()
        with builtin_errors("the question cannot be answered"):
            reply = self._knowledge.ask(
                question, self._collection, session_id=conversation_id or "", user_id=user, answer_id=id
            )
        answered = Answered.describe(id, reply, self._settings.pipeline_version, datetime.now(UTC))
        return answered.model_dump(mode="json", exclude_unset=True)

    @cached_property
    def _knowledge(self) -> KnowledgeBase:
        return KnowledgeBase(self._settings)


def hash_email(tenant: str, email: str) -> str:
    """A user id that is the same for all spellings of an address in capitals, and different in another tenant.

    Who knows the address can compute it: it hides the address, and proves nothing.
    """
    return f"user_{uuid5(_USERS, f'{tenant} {email.strip().casefold()}').hex}"
