"""Replies to messages that need no sources, such as thanks."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rag_core.answering.citing.citation_notes import sanitize_title
from rag_core.models.chat import ChatMessage, Completer
from rag_core.models.fence import defuse
from rag_core.retrieval.query.intent import Intent, Intents, load_intents
from rag_core.stage import attempt
from rag_core.types import Message

SMALL_TALK_STAGE = "small talk"
TIMEOUT = 3.0
"""Seconds for a model's reply. After that, the reply of the intent must do."""

MAX_TOKENS, MAX_MESSAGES = 60, 4


@dataclass(frozen=True, slots=True)
class SmallTalk:
    """Answers with the intent's reply, or with a language model's if there is a `client`.

    The model reads earlier answers, which quote documents: its reply can link only to `hosts`.
    """

    intents: Intents = field(default_factory=load_intents)
    client: Completer | None = None
    hosts: frozenset[str] = frozenset()

    async def reply(self, message: str, intent: Intent, history: Sequence[Message]) -> str:
        text = intent.reply(message)
        if self.client is None or not intent.system:
            return text
        work = self._complete(self.client, message, intent, history)
        reply = await attempt(SMALL_TALK_STAGE, work, otherwise="", timeout=TIMEOUT)
        return sanitize_title(reply, self.hosts) or text

    async def _complete(self, client: Completer, message: str, intent: Intent, history: Sequence[Message]) -> str:
        messages: list[ChatMessage] = [{"role": "system", "content": intent.system.strip()}]
        messages += [{"role": past.role, "content": defuse(past.text)} for past in history[-MAX_MESSAGES:]]
        completion = await client.complete(
            [*messages, {"role": "user", "content": defuse(message)}], max_tokens=MAX_TOKENS
        )
        return completion.text.strip()
